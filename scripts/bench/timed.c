/*
 * timed.c - run a command some times, and say for each run how long it took and how much memory it had at its peak.
 *
 * A process of its own, because a child inherits the peak of who starts it: a large parent would hide a small child.
 * Usage: timed COUNT INPUT COMMAND...   (INPUT: a file for its standard input, or "-" for none)
 * Prints per run: exit status, wall time in microseconds, peak memory in KiB. What the command prints is dropped.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int count, char **words) {
    if (count < 4) {
        fprintf(stderr, "timed COUNT INPUT COMMAND...\n");
        return 2;
    }
    const char *input = words[2][0] == '-' && !words[2][1] ? "/dev/null" : words[2];
    for (int left = atoi(words[1]); left > 0; left--) {
        double begin = now_us();
        pid_t child = fork();
        if (child < 0) {
            perror("timed: fork");
            return 2;
        }
        if (!child) {
            int in = open(input, O_RDONLY), out = open("/dev/null", O_WRONLY);
            if (in < 0 || out < 0) _exit(126);
            dup2(in, 0);
            dup2(out, 1);
            dup2(out, 2);
            execvp(words[3], words + 3);
            _exit(127);
        }
        int status;
        struct rusage used;
        if (wait4(child, &status, 0, &used) < 0) {
            perror("timed: wait4");
            return 2;
        }
        double took = now_us() - begin;
        printf("%d %.0f %ld\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), took, used.ru_maxrss);
    }
    return 0;
}
