/*
 * Note everything a process does to the files below one directory, in order; loaded before the C library.
 *
 * POWER_HOME is the directory, POWER_TRACE the file that the notes go to. A note is a line "OP OFFSET SIZE NAME-BYTES",
 * then the name, then SIZE bytes: what was written, or the second name of a rename or a link.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static const char *home;
static size_t home_length;
static int trace = -1;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pwrite64)(int, const void *, size_t, off64_t);
static int (*real_open)(const char *, int, ...);
static int (*real_open64)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static int (*real_openat64)(int, const char *, int, ...);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_ftruncate64)(int, off64_t);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_link)(const char *, const char *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("POWER_TRACE");
    home = getenv("POWER_HOME");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    real_pwrite64 = dlsym(RTLD_NEXT, "pwrite64");
    real_open = dlsym(RTLD_NEXT, "open");
    real_open64 = dlsym(RTLD_NEXT, "open64");
    real_openat = dlsym(RTLD_NEXT, "openat");
    real_openat64 = dlsym(RTLD_NEXT, "openat64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate");
    real_ftruncate64 = dlsym(RTLD_NEXT, "ftruncate64");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_link = dlsym(RTLD_NEXT, "link");
    if (home != NULL && path != NULL) {
        home_length = strlen(home);
        trace = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        /* Out of the way of who closes all low descriptors. */
        int high = fcntl(trace, F_DUPFD_CLOEXEC, 1000);
        if (high >= 0) {
            close(trace);
            trace = high;
        }
    }
}

static int is_inside(const char *path)
{
    return trace >= 0 && strncmp(path, home, home_length) == 0 && (path[home_length] == '/' || path[home_length] == 0);
}

/* Return the name of an open file below the home, or NULL; one that was deleted has none. */
static const char *name_of(int descriptor, char *buffer)
{
    char link[64];
    if (trace < 0)
        return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, buffer, PATH_MAX - 1);
    if (length <= 0)
        return NULL;
    buffer[length] = 0;
    return is_inside(buffer) && strstr(buffer, " (deleted)") == NULL ? buffer : NULL;
}

static void note(const char *what, const char *name, off64_t offset, size_t size, const void *data)
{
    char head[128];
    int length = snprintf(head, sizeof head, "%s %lld %zu %zu\n", what, (long long)offset, size, strlen(name));
    struct iovec parts[3] = {
        {head, (size_t)length}, {(void *)name, strlen(name)}, {(void *)data, data == NULL ? 0 : size}};
    if (writev(trace, parts, data == NULL ? 2 : 3) < 0)
        abort();
}

#define IN_ORDER(call, condition, noting)                                                                              \
    do {                                                                                                               \
        pthread_mutex_lock(&order);                                                                                    \
        result = call;                                                                                                 \
        if (condition) {                                                                                               \
            noting;                                                                                                    \
        }                                                                                                              \
        pthread_mutex_unlock(&order);                                                                                  \
    } while (0)

ssize_t write(int descriptor, const void *data, size_t size)
{
    char buffer[PATH_MAX];
    const char *name = descriptor == trace ? NULL : name_of(descriptor, buffer);
    struct stat status;
    if (name == NULL || fstat(descriptor, &status) < 0 || !S_ISREG(status.st_mode))
        return real_write(descriptor, data, size);
    ssize_t result;
    off64_t offset = fcntl(descriptor, F_GETFL) & O_APPEND ? status.st_size : lseek64(descriptor, 0, SEEK_CUR);
    IN_ORDER(real_write(descriptor, data, size), result > 0, note("write", name, offset, (size_t)result, data));
    return result;
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset)
{
    char buffer[PATH_MAX];
    const char *name = name_of(descriptor, buffer);
    ssize_t result;
    IN_ORDER(real_pwrite(descriptor, data, size, offset), name != NULL && result > 0,
             note("write", name, offset, (size_t)result, data));
    return result;
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset)
{
    char buffer[PATH_MAX];
    const char *name = name_of(descriptor, buffer);
    ssize_t result;
    IN_ORDER(real_pwrite64(descriptor, data, size, offset), name != NULL && result > 0,
             note("write", name, offset, (size_t)result, data));
    return result;
}

int fsync(int descriptor)
{
    char buffer[PATH_MAX];
    const char *name = name_of(descriptor, buffer);
    int result;
    IN_ORDER(real_fsync(descriptor), name != NULL && result == 0, note("sync", name, 0, 0, NULL));
    return result;
}

int fdatasync(int descriptor)
{
    char buffer[PATH_MAX];
    const char *name = name_of(descriptor, buffer);
    int result;
    IN_ORDER(real_fdatasync(descriptor), name != NULL && result == 0, note("sync", name, 0, 0, NULL));
    return result;
}

int ftruncate(int descriptor, off_t size)
{
    char buffer[PATH_MAX];
    const char *name = name_of(descriptor, buffer);
    int result;
    IN_ORDER(real_ftruncate(descriptor, size), name != NULL && result == 0, note("truncate", name, size, 0, NULL));
    return result;
}

int ftruncate64(int descriptor, off64_t size)
{
    char buffer[PATH_MAX];
    const char *name = name_of(descriptor, buffer);
    int result;
    IN_ORDER(real_ftruncate64(descriptor, size), name != NULL && result == 0, note("truncate", name, size, 0, NULL));
    return result;
}

int rename(const char *from, const char *to)
{
    int result;
    IN_ORDER(real_rename(from, to), result == 0 && is_inside(from), note("rename", from, 0, strlen(to), to));
    return result;
}

int link(const char *from, const char *to)
{
    int result;
    IN_ORDER(real_link(from, to), result == 0 && is_inside(from), note("link", from, 0, strlen(to), to));
    return result;
}

int unlink(const char *name)
{
    int result;
    IN_ORDER(real_unlink(name), result == 0 && is_inside(name), note("unlink", name, 0, 0, NULL));
    return result;
}

/* A file that is made, or emptied, by being opened. */
#define OPENING(call)                                                                                                  \
    mode_t mode = 0;                                                                                                   \
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {                                                       \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        mode = va_arg(arguments, mode_t);                                                                              \
        va_end(arguments);                                                                                             \
    }                                                                                                                  \
    int is_watched = trace >= 0 && is_inside(name);                                                                    \
    int is_there = is_watched && access(name, F_OK) == 0;                                                              \
    int result;                                                                                                        \
    IN_ORDER(call, is_watched && result >= 0, {                                                                        \
        if (!is_there)                                                                                                 \
            note("create", name, 0, 0, NULL);                                                                          \
        else if (flags & O_TRUNC)                                                                                      \
            note("truncate", name, 0, 0, NULL);                                                                        \
    });                                                                                                                \
    return result

int open(const char *name, int flags, ...)
{
    OPENING(real_open(name, flags, mode));
}

int open64(const char *name, int flags, ...)
{
    OPENING(real_open64(name, flags, mode));
}

int openat(int directory, const char *name, int flags, ...)
{
    OPENING(real_openat(directory, name, flags, mode));
}

int openat64(int directory, const char *name, int flags, ...)
{
    OPENING(real_openat64(directory, name, flags, mode));
}
