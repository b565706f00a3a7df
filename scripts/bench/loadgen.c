/*
 * loadgen.c - neutral load generator for small-message brokers.
 *
 * One single-threaded epoll process plays both ends of N client pairs (A, B):
 *   latency    : one request in flight on one pair; A -> broker -> B -> broker -> A
 *   throughput : P pairs with W requests in flight each, for T seconds
 *   one-way    : the same without replies, for R requests; a request is over when it is acked
 * Every message carries a unique id and a content that is compared byte for
 * byte on arrival; every message is accounted for (lost, duplicated, acked once).
 *
 * Build: gcc -O2 -Wall -o loadgen loadgen.c        Usage: ./loadgen --help
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

#define REQ 0
#define REP 1
#define IDLEN 36

/* ------------------------------------------------------------ options */
static struct {
    const char *proto, *addr, *label;
    bool latency, one_way, invoke, json, no_ack, expect_ack, confirm;
    int pairs, window, rounds, warm_rounds, size;
    double secs, warm_secs, drain_secs, connect_wait;
    i64 pace_us;
    const char *reg_extra, *ses_extra, *send_extra;
    int maxlen;
} O = {.proto = "intercom", .label = "", .pairs = 8, .window = 16, .rounds = 5000, .warm_rounds = 500,
       .size = 256, .secs = 3, .warm_secs = 1, .drain_secs = 5, .connect_wait = 10, .reg_extra = "",
       .ses_extra = "", .send_extra = "", .maxlen = 20000};

static void die(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "loadgen: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    exit(2);
}
static inline i64 now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (i64)t.tv_sec * 1000000000 + t.tv_nsec;
}
static i64 wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (i64)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
static void *xrealloc(void *p, size_t n) {
    p = realloc(p, n);
    if (!p) die("out of memory");
    return p;
}

/* ------------------------------------------------------------ state */
typedef struct Buf { char *p; size_t off, len, cap; } Buf; /* live bytes: p[off..len) */
typedef struct Conn {
    int fd, pair, side; /* side 0 = A, 1 = B */
    bool sub;           /* second connection used for receiving (redis) */
    bool dirty, armed, closed;
    Buf in, out;
    char sid[128]; /* broker-given session id / bus name / last stream id */
    u32 serial;
    u64 flushed; /* bytes handed to the kernel so far */
} Conn;
typedef struct Pair {
    int idx, inflight;
    Conn *c[2]; /* A, B (sending side) */
    Conn *s[2]; /* receiving side if separate */
    u64 issued[2]; /* per kind */
    u8 *st[2];     /* per seq: bits 0-1 arrivals, 2-3 acks, 4 failed, 5 (requests) round over */
    u64 *receipt[2]; /* --confirm, per seq: end of its receipt in the recipient's output stream, 0 = none yet */
    i64 *t0;       /* send time per request seq */
    u32 *rep_serial; /* dbus: serial of the call, needed by the reply */
    size_t cap;
    i64 next_at;
} Pair;
static Pair *P;
static Conn **conns;
static int nconns, ep;
static u64 run_id;
static char *pattern, *pattern_json; /* content after the 16-char stamp */
static size_t pattern_len, pattern_json_len;

static u64 n_fail, n_err, n_bad, n_dup, n_dupack, n_lost, n_noack, n_unknown, n_other, n_early;
static i64 n_due; /* sends that still wait for their ack or failure */
static u64 win_msgs, tot_msgs, tot_acks;
static i64 *lat;
static size_t nlat, caplat;
static bool measuring, stopping, fatal;
static i64 t_measure0, t_measure1;
static u64 rounds_done;
static struct rusage ru0, ru1; /* at the beginning and the end of what is measured */

static void buf_need(Buf *b, size_t n) {
    if (b->cap - b->len >= n) return;
    if (b->off) {
        memmove(b->p, b->p + b->off, b->len - b->off);
        b->len -= b->off;
        b->off = 0;
        if (b->cap - b->len >= n) return;
    }
    size_t c = b->cap ? b->cap : 65536;
    while (c - b->len < n) c *= 2;
    b->p = xrealloc(b->p, c);
    b->cap = c;
}
static Conn *dirty_list[1 << 16];
static int ndirty;
static char *out_begin(Conn *c, size_t n) {
    buf_need(&c->out, n);
    if (!c->dirty) {
        c->dirty = true;
        dirty_list[ndirty++] = c;
    }
    return c->out.p + c->out.len;
}
static void out_bytes(Conn *c, const void *p, size_t n) {
    memcpy(out_begin(c, n), p, n);
    c->out.len += n;
}
static void out_fmt(Conn *c, const char *fmt, ...) {
    char *d = out_begin(c, 4096);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(d, 4096, fmt, ap);
    if (n >= 4096) die("out_fmt overflow");
    c->out.len += n;
}

/* ------------------------------------------------------------ ids and content */
static const char HEX[] = "0123456789abcdef";
static inline void puthex(char *d, u64 v, int n) {
    for (int i = n - 1; i >= 0; i--, v >>= 4) d[i] = HEX[v & 15];
}
static inline i64 gethex(const char *s, int n) {
    u64 v = 0;
    for (int i = 0; i < n; i++) {
        int ch = s[i], x;
        if (ch >= '0' && ch <= '9') x = ch - '0';
        else if (ch >= 'a' && ch <= 'f') x = ch - 'a' + 10;
        else return -1;
        v = v << 4 | x;
    }
    return (i64)v;
}
/* rrrrrrrr-rrrr-4ppp-Krrr-ssssssssssss ; K = 8 request, 9 reply, a attempt(request), b attempt(reply) */
static inline void make_id(char *d, int pair, int variant, u64 seq) {
    puthex(d, run_id >> 32, 8);
    d[8] = '-';
    puthex(d + 9, run_id >> 16, 4);
    d[13] = '-';
    d[14] = '4';
    puthex(d + 15, pair, 3);
    d[18] = '-';
    d[19] = HEX[8 + variant];
    puthex(d + 20, run_id, 3);
    d[23] = '-';
    puthex(d + 24, seq, 12);
}
static inline bool parse_id(const char *s, size_t n, int *pair, int *kind, u64 *seq) {
    if (n != IDLEN) return false;
    char want[IDLEN];
    i64 p = gethex(s + 15, 3), q = gethex(s + 24, 12);
    int k = s[19] == '8' ? REQ : s[19] == '9' ? REP : -1;
    if (p < 0 || q < 0 || k < 0 || p >= O.pairs) return false;
    make_id(want, (int)p, k, (u64)q);
    if (memcmp(want, s, IDLEN)) return false;
    *pair = (int)p, *kind = k, *seq = (u64)q;
    return true;
}
static inline void stamp(char *d, int pair, int kind, u64 seq) { /* 16 chars, differs per message */
    puthex(d, (u64)pair, 4);
    d[4] = kind == REQ ? 'q' : 'r';
    puthex(d + 5, seq, 11);
}
static void make_pattern(void) {
    if (O.size < 16) die("--size must be at least 16");
    pattern_len = O.size - 16;
    pattern = xrealloc(NULL, pattern_len + 1);
    pattern_json = xrealloc(NULL, pattern_len * 2 + 1);
    static const char words[] = " please review the \"parser\" change in src/frame.c and tell me if tests pass; thanks\n";
    for (size_t i = 0; i < pattern_len; i++) {
        char ch = words[i % (sizeof words - 1)];
        pattern[i] = ch;
        if (ch == '"' || ch == '\\') pattern_json[pattern_json_len++] = '\\', pattern_json[pattern_json_len++] = ch;
        else if (ch == '\n') pattern_json[pattern_json_len++] = '\\', pattern_json[pattern_json_len++] = 'n';
        else pattern_json[pattern_json_len++] = ch;
    }
}
static bool text_ok_raw(const char *t, size_t n, int pair, int kind, u64 seq) {
    char s[16];
    stamp(s, pair, kind, seq);
    return n == 16 + pattern_len && !memcmp(t, s, 16) && !memcmp(t + 16, pattern, pattern_len);
}
static bool text_ok_json(const char *t, size_t n, int pair, int kind, u64 seq) {
    char s[16];
    stamp(s, pair, kind, seq);
    if (n < 16 || memcmp(t, s, 16)) return false;
    t += 16, n -= 16;
    if (n == pattern_json_len && !memcmp(t, pattern_json, n)) return true;
    size_t i = 0, j = 0; /* slow path: another legal escaping of the same text */
    while (i < n) {
        char ch = t[i++];
        if (ch == '\\' && i < n) {
            char e = t[i++];
            if (e == 'n') ch = '\n';
            else if (e == 't') ch = '\t';
            else if (e == 'u' && i + 4 <= n) {
                char low[4];
                for (int k = 0; k < 4; k++) low[k] = tolower((u8)t[i + k]);
                ch = (char)gethex(low, 4);
                i += 4;
            } else ch = e;
        }
        if (j >= pattern_len || pattern[j++] != ch) return false;
    }
    return j == pattern_len;
}

/* ------------------------------------------------------------ accounting */
typedef struct Proto {
    const char *name;
    bool two_conns;
    void (*setup)(void);
    void (*send)(Pair *, int kind, u64 seq);
    size_t (*parse)(Conn *, const char *, size_t); /* bytes consumed, 0 = need more */
    void (*after_read)(Conn *);
} Proto;
static Proto *PR;

static void grow(Pair *p, u64 seq) {
    if (seq < p->cap) return;
    size_t n = p->cap ? p->cap * 2 : 4096;
    for (int k = 0; k < 2; k++) {
        p->st[k] = xrealloc(p->st[k], n);
        memset(p->st[k] + p->cap, 0, n - p->cap);
        if (!O.confirm) continue;
        p->receipt[k] = xrealloc(p->receipt[k], n * sizeof *p->receipt[k]);
        memset(p->receipt[k] + p->cap, 0, (n - p->cap) * sizeof *p->receipt[k]);
    }
    p->t0 = xrealloc(p->t0, n * sizeof *p->t0);
    p->rep_serial = xrealloc(p->rep_serial, n * sizeof *p->rep_serial);
    p->cap = n;
}
static u64 n_issued;
static void issue(Pair *p) {
    u64 seq = p->issued[REQ]++;
    n_issued++;
    grow(p, seq);
    p->inflight++;
    n_due++;
    p->t0[seq] = now_ns();
    if (O.pace_us) p->next_at = p->t0[seq] + O.pace_us * 1000;
    PR->send(p, REQ, seq);
}
static void maybe_issue(Pair *p) {
    if (stopping || p->inflight >= O.window) return;
    if (O.one_way && n_issued >= (u64)(O.warm_rounds + O.rounds)) return;
    if (O.pace_us && now_ns() < p->next_at) return;
    issue(p);
}
static bool was_sent(Pair *p, int kind, u64 seq) { /* a reply is sent when its request arrives */
    return seq < p->issued[REQ] && (kind == REQ || (p->st[REQ][seq] & 3));
}
static void answered(u8 *s, u8 how) { /* ack or failure: only the first one is due */
    if (!(*s & (12 | 16))) n_due--;
    *s |= how;
}
static void round_over(Pair *p, u64 seq) { /* once per request, whatever comes first: reply or failure */
    if (p->st[REQ][seq] & 32) return;
    p->st[REQ][seq] |= 32;
    p->inflight--;
}
static void took(i64 t0) { /* a request is over: how long it took, and whether it was the last one to measure */
    i64 t = now_ns();
    rounds_done++;
    if (measuring) {
        if (nlat == caplat) lat = xrealloc(lat, (caplat = caplat ? caplat * 2 : 1 << 16) * sizeof *lat);
        lat[nlat++] = t - t0;
    }
    if (!O.latency && !O.one_way) return;
    if (rounds_done == (u64)O.warm_rounds) measuring = true, t_measure0 = t, getrusage(RUSAGE_SELF, &ru0);
    if (rounds_done >= (u64)(O.warm_rounds + O.rounds)) stopping = true, measuring = false, t_measure1 = t, getrusage(RUSAGE_SELF, &ru1);
}
static void got_ack(int pair, int kind, u64 seq) {
    Pair *p = &P[pair];
    if (!was_sent(p, kind, seq)) { n_unknown++; return; }
    u8 *s = &p->st[kind][seq];
    if (*s & 12) n_dupack++;
    else if (O.confirm && !O.invoke) { /* certainly early when the kernel does not have the whole receipt yet */
        u64 end = p->receipt[kind][seq];
        if (!end || p->s[kind == REQ ? 1 : 0]->flushed < end) n_early++;
    }
    answered(s, 4);
    tot_acks++;
    if (O.one_way && !(*s & 32)) {
        round_over(p, seq);
        took(p->t0[seq]);
        maybe_issue(p);
    }
}
static void got_fail(int pair, int kind, u64 seq) {
    Pair *p = &P[pair];
    n_fail++;
    if (!was_sent(p, kind, seq)) { n_unknown++; return; }
    answered(&p->st[kind][seq], 16);
    round_over(p, seq);
    maybe_issue(p);
}
static void got_msg(int side, int pair, int kind, u64 seq, bool content_ok) {
    Pair *p = &P[pair];
    if (seq >= p->cap || seq >= p->issued[REQ] || side != (kind == REQ ? 1 : 0)) { n_unknown++; return; }
    u8 *s = &p->st[kind][seq];
    if (*s & 3) { n_dup++; return; }
    *s |= 1;
    if (!content_ok) n_bad++;
    tot_msgs++;
    if (measuring) win_msgs++;
    if (kind == REQ) {
        if (O.one_way) return;
        n_due++;
        PR->send(p, REP, seq);
        return;
    }
    round_over(p, seq);
    took(p->t0[seq]);
    maybe_issue(p);
}

/* ------------------------------------------------------------ sockets */
static int dial(const char *addr) {
    i64 deadline = now_ns() + (i64)(O.connect_wait * 1e9);
    for (;;) {
        int fd, r;
        if (!strncmp(addr, "tcp:", 4)) {
            char host[64];
            const char *colon = strrchr(addr, ':');
            snprintf(host, sizeof host, "%.*s", (int)(colon - addr - 4), addr + 4);
            struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(colon + 1))};
            inet_pton(AF_INET, host, &a.sin_addr);
            fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            r = connect(fd, (void *)&a, sizeof a);
            int one = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        } else {
            if (!strncmp(addr, "unix:", 5)) addr += 5;
            struct sockaddr_un a = {.sun_family = AF_UNIX};
            snprintf(a.sun_path, sizeof a.sun_path, "%s", addr);
            fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            r = connect(fd, (void *)&a, sizeof a);
        }
        if (!r) {
            struct timeval tv = {.tv_sec = 20};
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
            return fd;
        }
        close(fd);
        if (now_ns() > deadline) die("cannot connect to %s: %s", addr, strerror(errno));
        usleep(500);
    }
}
static void flush_blocking(Conn *c) {
    while (c->out.off < c->out.len) {
        ssize_t n = write(c->fd, c->out.p + c->out.off, c->out.len - c->out.off);
        if (n < 0) die("setup write: %s", strerror(errno));
        c->out.off += n;
        c->flushed += n;
    }
    c->out.off = c->out.len = 0;
    if (c->dirty) {
        for (int i = 0; i < ndirty; i++)
            if (dirty_list[i] == c) { dirty_list[i] = dirty_list[--ndirty]; break; }
        c->dirty = false;
    }
}
static void read_blocking(Conn *c) {
    buf_need(&c->in, 65536);
    ssize_t n = read(c->fd, c->in.p + c->in.len, c->in.cap - c->in.len);
    if (n <= 0) die("setup read on connection %d: %s", c->pair, n ? strerror(errno) : "closed by the broker");
    c->in.len += n;
}
static Conn *new_conn(int pair, int side, bool sub) {
    Conn *c = calloc(1, sizeof *c);
    c->pair = pair, c->side = side, c->sub = sub;
    c->fd = dial(O.addr);
    conns = xrealloc(conns, (nconns + 1) * sizeof *conns);
    conns[nconns++] = c;
    return c;
}
static void conn_failed(Conn *c, const char *why) {
    if (c->closed) return;
    fprintf(stderr, "loadgen: connection of pair %d side %c lost: %s\n", c->pair, "AB"[c->side], why);
    c->closed = true;
    epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, NULL);
    n_err++;
    fatal = true;
}
static void flush_conn(Conn *c) {
    c->dirty = false;
    if (c->closed) return;
    while (c->out.off < c->out.len) {
        ssize_t n = send(c->fd, c->out.p + c->out.off, c->out.len - c->out.off, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) {
                if (!c->armed) {
                    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
                    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
                    c->armed = true;
                }
                return;
            }
            conn_failed(c, strerror(errno));
            return;
        }
        c->out.off += n;
        c->flushed += n;
    }
    c->out.off = c->out.len = 0;
    if (c->armed) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
        c->armed = false;
    }
}
static void parse_all(Conn *c) {
    while (c->in.off < c->in.len) {
        size_t n = PR->parse(c, c->in.p + c->in.off, c->in.len - c->in.off);
        if (!n) break;
        c->in.off += n;
    }
    if (c->in.off == c->in.len) c->in.off = c->in.len = 0;
    if (PR->after_read) PR->after_read(c);
}
static void on_readable(Conn *c) {
    for (int i = 0; i < 4; i++) {
        buf_need(&c->in, 65536);
        size_t room = c->in.cap - c->in.len;
        ssize_t n = recv(c->fd, c->in.p + c->in.len, room, MSG_DONTWAIT);
        if (n == 0) { conn_failed(c, "closed by the broker"); return; }
        if (n < 0) {
            if (errno == EAGAIN || errno == EINTR) return;
            conn_failed(c, strerror(errno));
            return;
        }
        c->in.len += n;
        parse_all(c);
        if ((size_t)n < room) return;
    }
}

/* ------------------------------------------------------------ JSON helpers (intercom) */
static const char *j_ws(const char *p, const char *e) {
    while (p < e && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
    return p;
}
static const char *j_str_end(const char *p, const char *e) { /* p after the opening quote; returns at the closing quote */
    for (;;) {
        const char *q = memchr(p, '"', e - p);
        if (!q) return NULL;
        const char *b = q;
        while (b > p && b[-1] == '\\') b--;
        if (((q - b) & 1) == 0) return q;
        p = q + 1;
    }
}
static const char *j_skip(const char *p, const char *e) {
    p = j_ws(p, e);
    if (p >= e) return NULL;
    if (*p == '"') {
        p = j_str_end(p + 1, e);
        return p ? p + 1 : NULL;
    }
    if (*p == '{' || *p == '[') {
        int depth = 0;
        while (p < e) {
            if (*p == '"') {
                p = j_str_end(p + 1, e);
                if (!p) return NULL;
            } else if (*p == '{' || *p == '[') depth++;
            else if ((*p == '}' || *p == ']') && --depth == 0) return p + 1;
            p++;
        }
        return NULL;
    }
    while (p < e && *p != ',' && *p != '}' && *p != ']') p++;
    return p;
}
typedef struct { const char *k; size_t kn; const char *v; size_t vn; bool str; } JField;
/* iterate over the members of the object at p; returns next position or NULL at the end */
static const char *j_next(const char *p, const char *e, JField *f) {
    p = j_ws(p, e);
    if (p < e && (*p == '{' || *p == ',')) p = j_ws(p + 1, e);
    if (p >= e || *p != '"') return NULL;
    const char *q = j_str_end(p + 1, e);
    if (!q) return NULL;
    f->k = p + 1, f->kn = q - p - 1;
    p = j_ws(q + 1, e);
    if (p >= e || *p != ':') return NULL;
    p = j_ws(p + 1, e);
    const char *end = j_skip(p, e);
    if (!end) return NULL;
    f->str = *p == '"';
    f->v = f->str ? p + 1 : p;
    f->vn = f->str ? (size_t)(end - p - 2) : (size_t)(end - p);
    return end;
}
static inline bool keq(const JField *f, const char *s) { return f->kn == strlen(s) && !memcmp(f->k, s, f->kn); }
static inline bool veq(const JField *f, const char *s) { return f->vn == strlen(s) && !memcmp(f->v, s, f->vn); }

/* ------------------------------------------------------------ intercom */
static void frame_end(Conn *c, size_t mark) { /* mark = offset (from off) where the 4-byte header sits */
    u32 n = htonl((u32)(c->out.len - mark - 4));
    memcpy(c->out.p + mark, &n, 4);
}
static inline char *put(char *d, const char *s, size_t n) { memcpy(d, s, n); return d + n; }
#define PUTS(d, lit) d = put(d, lit, sizeof(lit) - 1)
static void ic_invoke(Pair *p, u64 seq) { /* the request's id is that of the invocation */
    Conn *c = p->c[0];
    char *d0 = out_begin(c, pattern_json_len + 1024), *d = d0 + 4;
    PUTS(d, "{\"type\":\"invoke\",\"requestId\":\"");
    make_id(d, p->idx, REQ, seq), d += IDLEN;
    PUTS(d, "\",\"invocationId\":\"");
    make_id(d, p->idx, REQ, seq), d += IDLEN;
    PUTS(d, "\",\"targetId\":\"");
    d = put(d, p->c[1]->sid, strlen(p->c[1]->sid));
    PUTS(d, "\",\"task\":\"");
    stamp(d, p->idx, REQ, seq), d += 16;
    d = put(d, pattern_json, pattern_json_len);
    PUTS(d, "\"}");
    u32 n = htonl((u32)(d - d0 - 4));
    memcpy(d0, &n, 4);
    c->out.len += d - d0;
}
static void ic_send(Pair *p, int kind, u64 seq) {
    if (O.invoke) return ic_invoke(p, seq);
    Conn *c = p->c[kind == REQ ? 0 : 1], *peer = p->c[kind == REQ ? 1 : 0];
    static i64 ms, ms_at;
    i64 t = now_ns();
    if (t - ms_at > 500000) ms = wall_ms(), ms_at = t;
    char *d0 = out_begin(c, pattern_json_len + 1024 + strlen(O.send_extra)), *d = d0 + 4;
    PUTS(d, "{\"type\":\"send\",\"to\":\"");
    d = put(d, peer->sid, strlen(peer->sid));
    PUTS(d, "\",\"attemptId\":\"");
    make_id(d, p->idx, 2 + kind, seq), d += IDLEN;
    PUTS(d, "\",");
    if (*O.send_extra) d = put(d, O.send_extra, strlen(O.send_extra)), *d++ = ',';
    PUTS(d, "\"message\":{\"id\":\"");
    make_id(d, p->idx, kind, seq), d += IDLEN;
    d += sprintf(d, "\",\"timestamp\":%lld,", (long long)ms);
    if (kind == REQ) {
        if (!O.one_way) PUTS(d, "\"expectsReply\":true,");
    } else {
        PUTS(d, "\"replyTo\":\"");
        make_id(d, p->idx, REQ, seq), d += IDLEN;
        PUTS(d, "\",");
    }
    PUTS(d, "\"content\":{\"text\":\"");
    stamp(d, p->idx, kind, seq), d += 16;
    d = put(d, pattern_json, pattern_json_len);
    PUTS(d, "\"}}}");
    u32 n = htonl((u32)(d - d0 - 4));
    memcpy(d0, &n, 4);
    c->out.len += d - d0;
}
/* --confirm: the receipt goes into the same buffer as the reply that follows it, so both leave in one write */
static u64 ic_received(Conn *c, const char *id, size_t n) {
    char *d0 = out_begin(c, n + 64), *d = d0 + 4;
    PUTS(d, "{\"type\":\"received\",\"messageId\":\"");
    d = put(d, id, n);
    PUTS(d, "\"}");
    u32 len = htonl((u32)(d - d0 - 4));
    memcpy(d0, &len, 4);
    c->out.len += d - d0;
    return c->flushed + (c->out.len - c->out.off);
}
static void ic_frame(Conn *c, const char *p, const char *e) {
    JField f, type = {0}, sid = {0}, mid = {0}, msg = {0}, reason = {0}, att = {0}, echo = {0}, inv = {0}, req = {0};
    const char *q = p;
    while ((q = j_next(q, e, &f))) {
        if (keq(&f, "type")) type = f;
        else if (keq(&f, "message")) msg = f;
        else if (keq(&f, "messageId")) mid = f;
        else if (keq(&f, "sessionId")) sid = f;
        else if (keq(&f, "attemptId")) att = f;
        else if (keq(&f, "acknowledgesReceipt")) echo = f;
        else if (keq(&f, "invocation")) inv = f;
        else if (keq(&f, "requestId")) req = f;
        else if (keq(&f, "reason") || keq(&f, "error")) reason = f;
    }
    int pair, kind;
    u64 seq;
    if (veq(&type, "message") && msg.v) {
        JField id = {0}, re = {0}, text = {0};
        q = msg.v;
        while ((q = j_next(q, msg.v + msg.vn, &f))) {
            if (keq(&f, "id")) id = f;
            else if (keq(&f, "replyTo")) re = f;
            else if (keq(&f, "content")) {
                JField g;
                const char *r = f.v;
                while ((r = j_next(r, f.v + f.vn, &g)))
                    if (keq(&g, "text")) text = g;
            }
        }
        JField about = id;
        if (O.invoke && inv.v) { /* the message has an id of the broker's */
            JField g;
            for (const char *r = inv.v; (r = j_next(r, inv.v + inv.vn, &g));)
                if (keq(&g, "invocationId")) about = g;
        }
        u64 receipt = O.confirm && id.v && id.str ? ic_received(c, id.v, id.vn) : 0; /* copies are confirmed too */
        if (!about.v || !parse_id(about.v, about.vn, &pair, &kind, &seq) || pair != c->pair) { n_unknown++; return; }
        if (receipt && seq < P[pair].cap && c->side == (kind == REQ ? 1 : 0) && !P[pair].receipt[kind][seq])
            P[pair].receipt[kind][seq] = receipt;
        bool ok = text.v && text_ok_json(text.v, text.vn, pair, kind, seq);
        if (kind == REP) {
            int p2, k2;
            u64 s2;
            ok = ok && re.v && parse_id(re.v, re.vn, &p2, &k2, &s2) && p2 == pair && k2 == REQ && s2 == seq;
        } else ok = ok && (!re.v || !re.str);
        got_msg(c->side, pair, kind, seq, ok);
    } else if (veq(&type, "delivered") || veq(&type, "delivery_failed")) {
        bool fail = type.vn != 9;
        if (!mid.v || !parse_id(mid.v, mid.vn, &pair, &kind, &seq) || pair != c->pair ||
            (kind == REQ) != (c->side == 0)) {
            if (fail) n_fail++;
            n_unknown++;
            return;
        }
        if (att.v && att.str) {
            char want[IDLEN];
            make_id(want, pair, 2 + kind, seq);
            if (att.vn != IDLEN || memcmp(att.v, want, IDLEN)) n_bad++;
        }
        if (!fail) got_ack(pair, kind, seq);
        else {
            if (n_fail < 5) fprintf(stderr, "loadgen: delivery_failed: %.*s\n", (int)reason.vn, reason.v ? reason.v : "");
            got_fail(pair, kind, seq);
        }
    } else if (veq(&type, "invocation_accepted") || veq(&type, "request_failed")) {
        if (!req.v || !parse_id(req.v, req.vn, &pair, &kind, &seq) || pair != c->pair || c->side) { n_unknown++; return; }
        if (veq(&type, "invocation_accepted")) got_ack(pair, REQ, seq);
        else {
            if (n_fail < 5) fprintf(stderr, "loadgen: request_failed: %.*s\n", (int)reason.vn, reason.v ? reason.v : "");
            got_fail(pair, REQ, seq);
        }
    } else if (veq(&type, "registered") && sid.v) {
        if (O.confirm && (!echo.v || echo.str || echo.vn < 4 || memcmp(echo.v, "true", 4)))
            die("--confirm: registered does not echo \"acknowledgesReceipt\":true, this broker waits for no receipts");
        snprintf(c->sid, sizeof c->sid, "%.*s", (int)sid.vn, sid.v);
    } else {
        if (veq(&type, "error") || veq(&type, "registration_failed")) {
            n_err++;
            if (n_err < 5) fprintf(stderr, "loadgen: broker says %.*s: %.*s\n", (int)type.vn, type.v, (int)reason.vn, reason.v ? reason.v : "");
        }
        n_other++;
    }
}
static size_t ic_parse(Conn *c, const char *p, size_t n) {
    if (n < 4) return 0;
    u32 len;
    memcpy(&len, p, 4);
    len = ntohl(len);
    if (n < 4 + (size_t)len) {
        buf_need(&c->in, 4 + (size_t)len - n);
        return 0;
    }
    ic_frame(c, p + 4, p + 4 + len);
    return 4 + (size_t)len;
}
static void ic_setup(void) {
    for (int i = 0; i < O.pairs; i++)
        for (int s = 0; s < 2; s++) {
            Conn *c = P[i].c[s] = P[i].s[s] = new_conn(i, s, false);
            size_t mark = c->out.len;
            char conf[128] = "";
            if (O.confirm)
                snprintf(conf, sizeof conf, "\"returnAddress\":\"lg-%016llx-%d-%c\",\"acknowledgesReceipt\":true,",
                         (unsigned long long)run_id, i, "ab"[s]);
            out_bytes(c, "\0\0\0", 4);
            out_fmt(c, "{\"type\":\"register\",%s%s%s\"session\":{\"name\":\"lg-%d-%c\",\"cwd\":\"/tmp\",\"model\":\"loadgen\","
                       "\"pid\":%d,\"startedAt\":%lld,\"lastActivity\":%lld%s%s}}",
                    O.reg_extra, *O.reg_extra ? "," : "", conf, i, "ab"[s], (int)getpid(), (long long)wall_ms(),
                    (long long)wall_ms(), *O.ses_extra ? "," : "", O.ses_extra);
            frame_end(c, mark);
            flush_blocking(c);
            while (!*c->sid) {
                read_blocking(c);
                parse_all(c);
                if (n_err) die("registration refused");
            }
        }
}

/* ------------------------------------------------------------ echo (raw forwarder, see forwarder.c) */
/* registers like a session, then sends the same send frames; the forwarder passes each frame unread to the
 * partner; with its --ack it also answers each one with a small delivered frame (use --proto echo-ack). */
static size_t echo_parse(Conn *c, const char *p, size_t n) {
    if (n < 4) return 0;
    u32 len;
    memcpy(&len, p, 4);
    len = ntohl(len);
    if (n < 4 + (size_t)len) {
        buf_need(&c->in, 4 + (size_t)len - n);
        return 0;
    }
    const char *b = p + 4, *e = b + len;
    if (!*c->sid) { strcpy(c->sid, "x"); return 4 + len; } /* "ok" */
    int pair, kind;
    u64 seq;
    if (len >= 9 && !memcmp(b, "{\"type\":\"d", 10)) { ic_frame(c, b, e); return 4 + (size_t)len; } /* delivered */
    JField f, msg = {0}, id = {0}, text = {0};
    const char *q = b;
    while ((q = j_next(q, e, &f)))
        if (keq(&f, "message")) msg = f;
    for (q = msg.v; q && (q = j_next(q, msg.v + msg.vn, &f));) {
        if (keq(&f, "id")) id = f;
        else if (keq(&f, "content")) {
            JField g;
            for (const char *r = f.v; (r = j_next(r, f.v + f.vn, &g));)
                if (keq(&g, "text")) text = g;
        }
    }
    if (!id.v || !parse_id(id.v, id.vn, &pair, &kind, &seq) || pair != c->pair) n_unknown++;
    else got_msg(c->side, pair, kind, seq, text.v && text_ok_json(text.v, text.vn, pair, kind, seq));
    return 4 + (size_t)len;
}
static void echo_setup(void) {
    for (int i = 0; i < O.pairs; i++)
        for (int s = 0; s < 2; s++) {
            Conn *c = P[i].c[s] = P[i].s[s] = new_conn(i, s, false);
            out_bytes(c, "\0\0\0\3", 4);
            char h[3] = {(char)(i >> 8), (char)i, (char)s};
            out_bytes(c, h, 3);
            flush_blocking(c);
            while (!*c->sid) {
                read_blocking(c);
                parse_all(c);
            }
            strcpy(c->sid, "00000000-0000-4000-8000-000000000000"); /* same frame size as intercom */
        }
}

/* ------------------------------------------------------------ NATS core and JetStream */
static bool js;
#define RUN ((unsigned)(run_id >> 32)) /* subjects are unique per run: nothing of an earlier run can be delivered into this one */
static char sync_seen[64];
static void nats_send(Pair *p, int kind, u64 seq) {
    Conn *c = p->c[kind == REQ ? 0 : 1];
    size_t len = IDLEN + 16 + pattern_len;
    char *d0 = out_begin(c, len + 256), *d = d0;
    if (js) d += sprintf(d, "PUB js.%x.%d.%d _A%x.%d.%d.%llu %zu\r\n", RUN, p->idx, kind, RUN, p->idx, kind, (unsigned long long)seq, len);
    else if (kind == REQ) d += sprintf(d, "PUB svc.%x.%d _R.%x.%d %zu\r\n", RUN, p->idx, RUN, p->idx, len);
    else d += sprintf(d, "PUB _R.%x.%d %zu\r\n", RUN, p->idx, len);
    make_id(d, p->idx, kind, seq), d += IDLEN;
    stamp(d, p->idx, kind, seq), d += 16;
    d = put(d, pattern, pattern_len);
    PUTS(d, "\r\n");
    c->out.len += d - d0;
}
static size_t nats_parse(Conn *c, const char *p, size_t n) {
    const char *nl = memchr(p, '\n', n);
    if (!nl) return 0;
    size_t line = nl - p + 1;
    if (!strncmp(p, "MSG ", 4)) {
        /* MSG subject sid [reply] len */
        const char *tok[5];
        size_t tn[5];
        int nt = 0;
        const char *q = p + 4, *e = nl - 1;
        while (q < e && nt < 4) {
            const char *s = memchr(q, ' ', e - q);
            if (!s) s = e;
            tok[nt] = q, tn[nt++] = s - q;
            q = s + 1;
        }
        size_t len = strtoul(tok[nt - 1], NULL, 10);
        if (n < line + len + 2) {
            buf_need(&c->in, line + len + 2 - n);
            return 0;
        }
        const char *b = p + line;
        if (tn[1] == 1 && tok[1][0] == '2') { /* JetStream publish ack */
            int pair, kind;
            unsigned run;
            unsigned long long seq;
            if (sscanf(tok[0], "_A%x.%d.%d.%llu", &run, &pair, &kind, &seq) != 4 || run != RUN || pair != c->pair) n_unknown++;
            else if (memmem(b, len, "\"error\"", 7)) {
                if (n_fail < 5) fprintf(stderr, "loadgen: %.*s\n", (int)len, b);
                got_fail(pair, kind, seq);
            } else got_ack(pair, kind, seq);
        } else if (tn[1] == 1 && tok[1][0] == '3') { /* JetStream API answer */
            if (memmem(b, len, "\"error\"", 7)) die("JetStream API: %.*s", (int)len, b);
            snprintf(sync_seen, sizeof sync_seen, "api");
        } else {
            int pair, kind;
            u64 seq;
            if (len < IDLEN || !parse_id(b, IDLEN, &pair, &kind, &seq) || pair != c->pair) n_unknown++;
            else got_msg(c->side, pair, kind, seq, text_ok_raw(b + IDLEN, len - IDLEN, pair, kind, seq));
        }
        return line + len + 2;
    }
    if (!strncmp(p, "PING", 4)) out_fmt(c, "PONG\r\n");
    else if (!strncmp(p, "PONG", 4)) snprintf(sync_seen, sizeof sync_seen, "pong");
    else if (!strncmp(p, "-ERR", 4)) {
        n_err++;
        fprintf(stderr, "loadgen: %.*s\n", (int)line, p);
    } else if (strncmp(p, "INFO", 4)) n_other++;
    return line;
}
static void nats_wait(Conn *c, const char *what) {
    sync_seen[0] = 0;
    while (strcmp(sync_seen, what)) {
        read_blocking(c);
        parse_all(c);
        if (n_err) die("nats setup failed");
    }
}
static void nats_setup(void) {
    for (int i = 0; i < O.pairs; i++)
        for (int s = 0; s < 2; s++) {
            Conn *c = P[i].c[s] = P[i].s[s] = new_conn(i, s, false);
            out_fmt(c, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":false,\"lang\":\"c\",\"version\":\"0\",\"protocol\":1,\"name\":\"lg\"}\r\n");
            if (js) {
                out_fmt(c, "SUB d.%x.%d.%d 1\r\nSUB _A%x.%d.%d.* 2\r\nSUB _API.%x.%d.%d 3\r\nPING\r\n", RUN, i, s ? REQ : REP,
                        RUN, i, s ? REP : REQ, RUN, i, s);
                flush_blocking(c);
                nats_wait(c, "pong");
                char body[1024];
                if (i == 0 && s == 0) {
                    int n = snprintf(body, sizeof body,
                                     "{\"name\":\"LG\",\"subjects\":[\"js.>\"],\"retention\":\"limits\",\"storage\":\"file\","
                                     "\"discard\":\"old\",\"max_bytes\":1073741824,\"max_msgs\":-1,\"max_age\":0,\"num_replicas\":1,"
                                     "\"max_consumers\":-1,\"max_msg_size\":-1,\"duplicate_window\":0}");
                    out_fmt(c, "PUB $JS.API.STREAM.CREATE.LG _API.%x.%d.%d %d\r\n%s\r\n", RUN, i, s, n, body);
                    flush_blocking(c);
                    nats_wait(c, "api");
                }
                int n = snprintf(body, sizeof body,
                                 "{\"stream_name\":\"LG\",\"config\":{\"deliver_subject\":\"d.%x.%d.%d\",\"filter_subject\":\"js.%x.%d.%d\","
                                 "\"deliver_policy\":\"new\",\"ack_policy\":\"none\",\"replay_policy\":\"instant\"}}",
                                 RUN, i, s ? REQ : REP, RUN, i, s ? REQ : REP);
                out_fmt(c, "PUB $JS.API.CONSUMER.CREATE.LG _API.%x.%d.%d %d\r\n%s\r\n", RUN, i, s, n, body);
                flush_blocking(c);
                nats_wait(c, "api");
            } else {
                if (s) out_fmt(c, "SUB svc.%x.%d 1\r\nPING\r\n", RUN, i);
                else out_fmt(c, "SUB _R.%x.%d 1\r\nPING\r\n", RUN, i);
                flush_blocking(c);
                nats_wait(c, "pong");
            }
        }
}

/* ------------------------------------------------------------ Redis streams */
/* per client: one connection for XADD (its replies are the acks, in order) and one for XREAD BLOCK */
static void resp_bulk(Conn *c, const char *p, size_t n) {
    out_fmt(c, "$%zu\r\n", n);
    out_bytes(c, p, n);
    out_bytes(c, "\r\n", 2);
}
static void redis_send(Pair *p, int kind, u64 seq) {
    Conn *c = p->c[kind == REQ ? 0 : 1];
    char key[32], ml[16];
    int kn = sprintf(key, "lg:%d:%c", p->idx, "qr"[kind]), mn = sprintf(ml, "%d", O.maxlen);
    size_t len = IDLEN + 16 + pattern_len;
    char *d0 = out_begin(c, len + 256), *d = d0;
    d += sprintf(d, "*8\r\n$4\r\nXADD\r\n$%d\r\n%s\r\n$6\r\nMAXLEN\r\n$1\r\n~\r\n$%d\r\n%s\r\n$1\r\n*\r\n$1\r\nd\r\n$%zu\r\n", kn,
                 key, mn, ml, len);
    make_id(d, p->idx, kind, seq), d += IDLEN;
    stamp(d, p->idx, kind, seq), d += 16;
    d = put(d, pattern, pattern_len);
    PUTS(d, "\r\n");
    c->out.len += d - d0;
}
/* XADD answers come in order: a per-connection queue of sequence numbers tells which message is acked */
typedef struct { u64 *q; size_t h, t, cap; } SeqQ;
static SeqQ *seqq; /* indexed pair*2+side */
static void sq_push(SeqQ *s, u64 v) {
    if (s->t - s->h == s->cap) {
        size_t nc = s->cap ? s->cap * 2 : 1024;
        u64 *n = xrealloc(NULL, nc * sizeof *n);
        for (size_t i = s->h; i < s->t; i++) n[i - s->h] = s->q[i % s->cap];
        s->t -= s->h, s->h = 0;
        free(s->q);
        s->q = n, s->cap = nc;
    }
    s->q[s->t++ % s->cap] = v;
}
static void redis_send_q(Pair *p, int kind, u64 seq) {
    sq_push(&seqq[p->idx * 2 + (kind == REQ ? 0 : 1)], seq);
    redis_send(p, kind, seq);
}
static i64 resp_len(const char *p, const char *e) { /* length of one whole reply, 0 = incomplete */
    const char *nl = memchr(p, '\n', e - p);
    if (!nl) return 0;
    const char *q = nl + 1;
    long n = strtol(p + 1, NULL, 10);
    if (*p == '$') {
        if (n < 0) return q - p;
        return e - q >= n + 2 ? q - p + n + 2 : 0;
    }
    if (*p == '*') {
        for (long i = 0; i < n; i++) {
            i64 l = resp_len(q, e);
            if (!l) return 0;
            q += l;
        }
    }
    return q - p;
}
static const char *resp_arr(const char *p, long *n) {
    *n = strtol(p + 1, NULL, 10);
    return (const char *)memchr(p, '\n', 32) + 1;
}
static const char *resp_str(const char *p, const char **s, size_t *n) {
    *n = strtoul(p + 1, NULL, 10);
    *s = (const char *)memchr(p, '\n', 32) + 1;
    return *s + *n + 2;
}
static void redis_xread(Conn *c) {
    char key[32];
    int kn = sprintf(key, "lg:%d:%c", c->pair, c->side ? 'q' : 'r');
    out_fmt(c, "*8\r\n$5\r\nXREAD\r\n$5\r\nCOUNT\r\n$3\r\n128\r\n$5\r\nBLOCK\r\n$1\r\n0\r\n$7\r\nSTREAMS\r\n");
    resp_bulk(c, key, kn);
    resp_bulk(c, c->sid, strlen(c->sid));
}
static size_t redis_parse(Conn *c, const char *p, size_t n) {
    i64 len = resp_len(p, p + n);
    if (!len) return 0;
    if (*p == '-') {
        n_err++;
        if (n_err < 5) fprintf(stderr, "loadgen: redis: %.*s\n", (int)len, p);
        return len;
    }
    if (!c->sub) { /* XADD id */
        SeqQ *s = &seqq[c->pair * 2 + c->side];
        if (s->h == s->t) n_unknown++;
        else got_ack(c->pair, c->side == 0 ? REQ : REP, s->q[s->h++ % s->cap]);
        return len;
    }
    if (*p != '*' || p[1] == '-') { n_other++; return len; }
    long n1, n2, n3, n4;
    const char *q = resp_arr(p, &n1), *s;
    size_t sl;
    q = resp_arr(q, &n2);
    q = resp_str(q, &s, &sl);
    q = resp_arr(q, &n3);
    for (long i = 0; i < n3; i++) {
        q = resp_arr(q, &n2);
        q = resp_str(q, &s, &sl);
        snprintf(c->sid, sizeof c->sid, "%.*s", (int)sl, s);
        q = resp_arr(q, &n4);
        q = resp_str(q, &s, &sl);
        q = resp_str(q, &s, &sl);
        int pair, kind;
        u64 seq;
        if (sl < IDLEN || !parse_id(s, IDLEN, &pair, &kind, &seq) || pair != c->pair) n_unknown++;
        else got_msg(c->side, pair, kind, seq, text_ok_raw(s + IDLEN, sl - IDLEN, pair, kind, seq));
    }
    redis_xread(c);
    return len;
}
static void redis_setup(void) {
    seqq = calloc(O.pairs * 2, sizeof *seqq);
    for (int i = 0; i < O.pairs; i++)
        for (int s = 0; s < 2; s++) {
            P[i].c[s] = new_conn(i, s, false);
            Conn *c = P[i].s[s] = new_conn(i, s, true);
            out_fmt(c, "*2\r\n$3\r\nDEL\r\n");
            char key[32];
            int kn = sprintf(key, "lg:%d:%c", i, s ? 'q' : 'r');
            resp_bulk(c, key, kn);
            flush_blocking(c);
            read_blocking(c);
            if (c->in.p[0] != ':') die("redis DEL: %.*s", (int)c->in.len, c->in.p);
            c->in.len = c->in.off = 0;
            strcpy(c->sid, "0-0");
            redis_xread(c);
            flush_blocking(c);
        }
    usleep(100000); /* let every XREAD block */
}

/* ------------------------------------------------------------ D-Bus wire protocol (method call / return) */
static char *db_al(char *b0, char *d, int a) {
    while ((d - b0) % a) *d++ = 0;
    return d;
}
static char *db_u32(char *d, u32 v) { v = htole32(v); return put(d, (char *)&v, 4); }
static char *db_field_s(char *b0, char *d, u8 code, char sig, const char *s, size_t n) {
    d = db_al(b0, d, 8);
    *d++ = code, *d++ = 1, *d++ = sig, *d++ = 0;
    if (sig == 'g') *d++ = (char)n;
    else d = db_u32(db_al(b0, d, 4), (u32)n);
    d = put(d, s, n);
    *d++ = 0;
    return d;
}
static void db_msg(Conn *c, u8 type, u8 flags, u32 serial, const char *dest, const char *path, const char *iface,
                   const char *member, u32 reply_serial, const char *body, size_t blen, const char *sig) {
    char *b0 = out_begin(c, 1024 + blen), *d = b0;
    *d++ = 'l', *d++ = (char)type, *d++ = (char)flags, *d++ = 1;
    d = db_u32(d, (u32)blen);
    d = db_u32(d, serial);
    char *flen = d;
    d += 4;
    char *f0 = d;
    if (path) d = db_field_s(b0, d, 1, 'o', path, strlen(path));
    if (iface) d = db_field_s(b0, d, 2, 's', iface, strlen(iface));
    if (member) d = db_field_s(b0, d, 3, 's', member, strlen(member));
    if (reply_serial) {
        d = db_al(b0, d, 8);
        *d++ = 5, *d++ = 1, *d++ = 'u', *d++ = 0;
        d = db_u32(d, reply_serial);
    }
    if (dest) d = db_field_s(b0, d, 6, 's', dest, strlen(dest));
    if (sig) d = db_field_s(b0, d, 8, 'g', sig, strlen(sig));
    db_u32(flen, (u32)(d - f0));
    d = db_al(b0, d, 8);
    if (blen) d = put(d, body, blen);
    c->out.len += d - b0;
}
static void db_send(Pair *p, int kind, u64 seq) {
    static char *body;
    if (!body) body = xrealloc(NULL, IDLEN + 64 + pattern_len);
    Conn *c = p->c[kind == REQ ? 0 : 1], *peer = p->c[kind == REQ ? 1 : 0];
    size_t sl = IDLEN + 16 + pattern_len;
    char *d = db_u32(body, (u32)sl);
    make_id(d, p->idx, kind, seq), d += IDLEN;
    stamp(d, p->idx, kind, seq), d += 16;
    d = put(d, pattern, pattern_len);
    *d++ = 0;
    if (kind == REQ) db_msg(c, 1, 2, ++c->serial, peer->sid, "/b", "x.Bench", "Ask", 0, body, d - body, "s");
    else db_msg(c, 2, 1, ++c->serial, peer->sid, NULL, NULL, NULL, p->rep_serial[seq], body, d - body, "s");
}
static size_t db_parse(Conn *c, const char *p, size_t n) {
    if (n < 16) return 0;
    u32 blen, flen, serial;
    memcpy(&blen, p + 4, 4), memcpy(&serial, p + 8, 4), memcpy(&flen, p + 12, 4);
    size_t hdr = 16 + ((flen + 7) & ~7u), total = hdr + blen;
    if (p[0] != 'l') die("dbus: unexpected endianness");
    if (n < total) {
        buf_need(&c->in, total - n);
        return 0;
    }
    u8 type = p[1];
    if (type == 3) {
        n_err++;
        if (n_err < 5) fprintf(stderr, "loadgen: dbus error: %.*s\n", blen > 4 ? (int)blen - 5 : 0, p + hdr + 4);
        return total;
    }
    if (!*c->sid && type == 2) { /* answer to Hello */
        snprintf(c->sid, sizeof c->sid, "%s", p + hdr + 4);
        return total;
    }
    if (type != 1 && type != 2) { n_other++; return total; } /* NameAcquired signal */
    int pair, kind;
    u64 seq;
    u32 sl;
    memcpy(&sl, p + hdr, 4);
    const char *b = p + hdr + 4;
    if (blen < 5 + IDLEN || sl + 5 != blen || !parse_id(b, IDLEN, &pair, &kind, &seq) || pair != c->pair) n_unknown++;
    else {
        if (kind == REQ && seq < P[pair].cap) P[pair].rep_serial[seq] = serial;
        got_msg(c->side, pair, kind, seq, text_ok_raw(b + IDLEN, sl - IDLEN, pair, kind, seq));
    }
    return total;
}
static void db_setup(void) {
    for (int i = 0; i < O.pairs; i++)
        for (int s = 0; s < 2; s++) {
            Conn *c = P[i].c[s] = P[i].s[s] = new_conn(i, s, false);
            char uid[16], hex[40];
            int un = sprintf(uid, "%u", geteuid());
            for (int k = 0; k < un; k++) sprintf(hex + 2 * k, "%02x", uid[k]);
            out_bytes(c, "\0", 1);
            out_fmt(c, "AUTH EXTERNAL %s\r\n", hex);
            flush_blocking(c);
            do read_blocking(c);
            while (!memchr(c->in.p, '\n', c->in.len));
            if (strncmp(c->in.p, "OK ", 3)) die("dbus auth: %.*s", (int)c->in.len, c->in.p);
            c->in.off = c->in.len = 0;
            out_fmt(c, "BEGIN\r\n");
            db_msg(c, 1, 0, ++c->serial, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", 0, NULL, 0, NULL);
            flush_blocking(c);
            while (!*c->sid) {
                read_blocking(c);
                parse_all(c);
                if (n_err) die("dbus Hello failed");
            }
        }
}

static Proto protos[] = {
    {"intercom", false, ic_setup, ic_send, ic_parse, NULL},
    {"echo", false, echo_setup, ic_send, echo_parse, NULL},
    {"nats", false, nats_setup, nats_send, nats_parse, NULL},
    {"jetstream", false, nats_setup, nats_send, nats_parse, NULL},
    {"redis", true, redis_setup, redis_send_q, redis_parse, NULL},
    {"dbus", false, db_setup, db_send, db_parse, NULL},
};

/* ------------------------------------------------------------ main */
static int cmp_i64(const void *a, const void *b) {
    i64 x = *(i64 *)a, y = *(i64 *)b;
    return x < y ? -1 : x > y;
}
static double pct(double q) { return nlat ? lat[(size_t)((nlat - 1) * q)] / 1000.0 : 0; }

static void usage(void) {
    puts("loadgen --proto intercom|echo|echo-ack|nats|jetstream|redis|dbus --addr unix:PATH|tcp:HOST:PORT\n"
         "  --mode latency|throughput|one-way   default throughput\n"
         "  --rounds R --warm-rounds R  latency and one-way mode (5000, 500)\n"
         "  --pairs P --window W        throughput and one-way mode (8, 16)\n"
         "  --secs T --warm-secs T      throughput mode (3, 1)\n"
         "  --size BYTES                text bytes per message (256)\n"
         "  --pace-us U                 at most one request per U microseconds and pair\n"
         "  --register-extra JSON       members added to the register frame, e.g. '\"token\":\"x\"'\n"
         "  --session-extra JSON        members added to its session object\n"
         "  --send-extra JSON           members added to every send frame\n"
         "  --no-ack                    do not require one ack per message\n"
         "  --confirm                   intercom: register with acknowledgesReceipt, answer every message with `received`\n"
         "  --invoke                    intercom, one-way: invoke the partner instead of sending to it\n"
         "  --connect-wait S            retry the first connect this long (10)\n"
         "  --settle S, --drain-secs S  at the end wait at most this long for replies and acks still due (5)\n"
         "  --json                      print one JSON line\n"
         "exit status: 0 all accounted for, 1 losses/duplicates/bad content/failures, 2 could not run");
}
static const char *arg(int *i, int ac, char **av) {
    if (*i + 1 >= ac) die("%s needs a value", av[*i]);
    return av[++*i];
}

int main(int ac, char **av) {
    for (int i = 1; i < ac; i++) {
        const char *a = av[i];
#define OPT(s) (!strcmp(a, s))
        if (OPT("--proto")) O.proto = arg(&i, ac, av);
        else if (OPT("--addr")) O.addr = arg(&i, ac, av);
        else if (OPT("--label")) O.label = arg(&i, ac, av);
        else if (OPT("--mode")) {
            const char *mode = arg(&i, ac, av);
            O.latency = !strcmp(mode, "latency"), O.one_way = !strcmp(mode, "one-way");
        }
        else if (OPT("--rounds")) O.rounds = atoi(arg(&i, ac, av));
        else if (OPT("--warm-rounds")) O.warm_rounds = atoi(arg(&i, ac, av));
        else if (OPT("--pairs")) O.pairs = atoi(arg(&i, ac, av));
        else if (OPT("--window")) O.window = atoi(arg(&i, ac, av));
        else if (OPT("--secs")) O.secs = atof(arg(&i, ac, av));
        else if (OPT("--warm-secs")) O.warm_secs = atof(arg(&i, ac, av));
        else if (OPT("--settle") || OPT("--drain-secs")) O.drain_secs = atof(arg(&i, ac, av));
        else if (OPT("--connect-wait")) O.connect_wait = atof(arg(&i, ac, av));
        else if (OPT("--size")) O.size = atoi(arg(&i, ac, av));
        else if (OPT("--pace-us")) O.pace_us = atoll(arg(&i, ac, av));
        else if (OPT("--register-extra")) O.reg_extra = arg(&i, ac, av);
        else if (OPT("--session-extra")) O.ses_extra = arg(&i, ac, av);
        else if (OPT("--send-extra")) O.send_extra = arg(&i, ac, av);
        else if (OPT("--no-ack")) O.no_ack = true;
        else if (OPT("--confirm")) O.confirm = true;
        else if (OPT("--invoke")) O.invoke = true;
        else if (OPT("--json")) O.json = true;
        else if (OPT("--help")) { usage(); return 0; }
        else die("unknown option %s (try --help)", a);
    }
    if (!O.addr) { usage(); return 2; }
    const char *base = !strcmp(O.proto, "echo-ack") ? "echo" : O.proto;
    for (size_t i = 0; i < sizeof protos / sizeof *protos; i++)
        if (!strcmp(base, protos[i].name)) PR = &protos[i];
    if (!PR) die("unknown protocol %s", O.proto);
    if (O.confirm && strcmp(O.proto, "intercom")) die("--confirm needs --proto intercom");
    if (O.invoke && (!O.one_way || strcmp(O.proto, "intercom"))) die("--invoke needs --proto intercom --mode one-way");
    js = !strcmp(base, "jetstream");
    O.expect_ack = !O.no_ack && (!strcmp(O.proto, "intercom") || !strcmp(O.proto, "echo-ack") || js || !strcmp(base, "redis"));
    if (O.latency) O.pairs = 1, O.window = 1;
    if (O.pairs < 1 || O.pairs > 4096 || O.window < 1) die("bad --pairs/--window");
    if (O.warm_rounds < 1) O.warm_rounds = 1;
    if (getrandom(&run_id, sizeof run_id, 0) != sizeof run_id) die("getrandom");
    struct rlimit rl;
    getrlimit(RLIMIT_NOFILE, &rl);
    rl.rlim_cur = rl.rlim_max;
    setrlimit(RLIMIT_NOFILE, &rl);
    make_pattern();
    P = calloc(O.pairs, sizeof *P);
    for (int i = 0; i < O.pairs; i++) P[i].idx = i;
    i64 ts = now_ns();
    PR->setup();
    double setup_ms = (now_ns() - ts) / 1e6;
    ep = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < nconns; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = conns[i]};
        epoll_ctl(ep, EPOLL_CTL_ADD, conns[i]->fd, &e);
        parse_all(conns[i]);
    }
    getrusage(RUSAGE_SELF, &ru0);
    i64 start = now_ns(), warm_end = start + (i64)(O.warm_secs * 1e9), end = warm_end + (i64)(O.secs * 1e9);
    i64 drain_end = 0, idle_at = 0, lat_deadline = start + 300000000000LL, seen_at = start;
    u64 seen = 0;
    for (int i = 0; i < O.pairs; i++)
        for (int w = 0; w < O.window; w++) {
            if (O.pace_us && w) break;
            issue(&P[i]);
        }
    while (!fatal) {
        while (ndirty) flush_conn(dirty_list[--ndirty]);
        if (stopping) {
            i64 t = now_ns();
            if (!drain_end) drain_end = t + (i64)(O.drain_secs * 1e9);
            bool idle = !O.expect_ack || n_due <= 0;
            for (int i = 0; i < O.pairs && idle; i++) idle = P[i].inflight <= 0;
            if (O.one_way && tot_msgs + n_fail < n_issued) idle = false;
            if (!idle) idle_at = 0;
            else if (!idle_at) idle_at = t;
            if (t >= drain_end || (idle && t - idle_at >= 200000000)) break; /* 200 ms more, to catch duplicates */
        }
        struct epoll_event ev[256];
        int n = epoll_wait(ep, ev, 256, stopping ? 20 : O.pace_us ? 1 : 100);
        for (int i = 0; i < n; i++) {
            Conn *c = ev[i].data.ptr;
            if (c->closed) continue;
            if (ev[i].events & EPOLLOUT) flush_conn(c);
            if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(c);
        }
        if (O.pace_us && !stopping)
            for (int i = 0; i < O.pairs; i++) maybe_issue(&P[i]);
        if (!O.latency && !O.one_way) {
            i64 t = now_ns();
            if (!measuring && !stopping && t >= warm_end) measuring = true, t_measure0 = t, getrusage(RUSAGE_SELF, &ru0);
            if (measuring && t >= end) measuring = false, stopping = true, t_measure1 = t, getrusage(RUSAGE_SELF, &ru1);
        } else if (now_ns() > lat_deadline) die("latency run took too long");
        if (tot_msgs != seen || stopping) seen = tot_msgs, seen_at = now_ns();
        else if (now_ns() - seen_at > 10000000000LL) {
            fprintf(stderr, "loadgen: no message arrived for 10 s, giving up\n");
            n_err++;
            fatal = true;
        }
    }
    if (!t_measure1) t_measure1 = now_ns();
    if (fatal) getrusage(RUSAGE_SELF, &ru1);
    u64 sent[2] = {0, 0};
    for (int i = 0; i < O.pairs; i++)
        for (u64 q = 0; q < P[i].issued[REQ]; q++) {
            u8 a = P[i].st[REQ][q], b = P[i].st[REP][q];
            sent[REQ]++;
            if (!(a & 16)) {
                if (!(a & 3)) n_lost++;
                if (O.expect_ack && !(a & 12)) n_noack++;
            }
            if ((a & 3) && !O.one_way) { /* B answered */
                sent[REP]++;
                if (!(b & 16)) {
                    if (!(b & 3)) n_lost++;
                    if (O.expect_ack && !(b & 12)) n_noack++;
                }
            }
        }
    double secs = t_measure0 ? (t_measure1 - t_measure0) / 1e9 : 0;
    double cpu = (ru1.ru_utime.tv_sec - ru0.ru_utime.tv_sec + ru1.ru_stime.tv_sec - ru0.ru_stime.tv_sec) +
                 (ru1.ru_utime.tv_usec - ru0.ru_utime.tv_usec + ru1.ru_stime.tv_usec - ru0.ru_stime.tv_usec) / 1e6;
    qsort(lat, nlat, sizeof *lat, cmp_i64);
    double rate = secs > 0 ? win_msgs / secs : 0;
    if (O.latency && secs > 0) rate = 2.0 * nlat / secs;
    if (O.one_way && secs > 0) rate = nlat / secs;
    bool bad = n_lost || n_dup || n_dupack || n_noack || n_bad || n_fail || n_err || n_unknown || fatal;
    if (O.json)
        printf("{\"label\":\"%s\",\"proto\":\"%s\",\"mode\":\"%s\",\"pairs\":%d,\"window\":%d,\"size\":%d,\"secs\":%.3f,\"rounds\":%zu,"
               "\"msgs\":%llu,\"msgs_per_s\":%.1f,\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,\"sent\":%llu,\"acks\":%llu,"
               "\"lost\":%llu,\"duplicates\":%llu,\"dup_acks\":%llu,\"missing_acks\":%llu,\"bad_content\":%llu,\"delivery_failed\":%llu,"
               "\"errors\":%llu,\"unknown\":%llu,\"other_frames\":%llu,\"confirm\":%s,\"early_delivered\":%llu,\"setup_ms\":%.2f,"
               "\"cpu_frac\":%.3f,\"fatal\":%s}\n",
               O.label, O.proto, O.latency ? "latency" : O.one_way ? "one-way" : "throughput", O.pairs, O.window, O.size, secs, nlat,
               (unsigned long long)tot_msgs, rate, pct(.5), pct(.9), pct(.99), pct(1), (unsigned long long)(sent[0] + sent[1]),
               (unsigned long long)tot_acks, (unsigned long long)n_lost, (unsigned long long)n_dup, (unsigned long long)n_dupack,
               (unsigned long long)n_noack, (unsigned long long)n_bad, (unsigned long long)n_fail, (unsigned long long)n_err,
               (unsigned long long)n_unknown, (unsigned long long)n_other, O.confirm ? "true" : "false", (unsigned long long)n_early,
               setup_ms, secs > 0 ? cpu / secs : 0, fatal ? "true" : "false");
    else {
        printf("%s%s %s size=%d pairs=%d window=%d\n", O.proto, O.confirm ? " --confirm" : "",
               O.latency ? "latency" : O.one_way ? "one-way" : "throughput", O.size, O.pairs, O.window);
        printf("  round trip us: p50=%.1f p90=%.1f p99=%.1f max=%.1f (%zu rounds)\n", pct(.5), pct(.9), pct(.99), pct(1), nlat);
        printf("  routed messages/s: %.0f over %.2f s; generator CPU %.0f%%\n", rate, secs, secs > 0 ? 100 * cpu / secs : 0);
        printf("  sent=%llu arrived=%llu acks=%llu lost=%llu duplicates=%llu missing_acks=%llu dup_acks=%llu bad_content=%llu "
               "delivery_failed=%llu errors=%llu unknown=%llu other_frames=%llu early_delivered=%llu\n",
               (unsigned long long)(sent[0] + sent[1]), (unsigned long long)tot_msgs, (unsigned long long)tot_acks,
               (unsigned long long)n_lost, (unsigned long long)n_dup, (unsigned long long)n_noack, (unsigned long long)n_dupack,
               (unsigned long long)n_bad, (unsigned long long)n_fail, (unsigned long long)n_err, (unsigned long long)n_unknown,
               (unsigned long long)n_other, (unsigned long long)n_early);
    }
    return bad ? 1 : 0;
}
