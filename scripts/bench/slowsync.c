/*
 * slowsync.c - a slow disk: loaded ahead of the C library, it lets every sync take so many microseconds more.
 *
 * Build: gcc -O2 -Wall -shared -fPIC -o slowsync.so slowsync.c -ldl     Use: LD_PRELOAD=... SLOW_SYNC_US=20000 PROGRAM
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int slowly(const char *name, int fd) {
    const char *wait = getenv("SLOW_SYNC_US");
    long us = wait ? atol(wait) : 0;
    struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&pause, NULL);
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return sync(fd);
}
int fsync(int fd) { return slowly("fsync", fd); }
int fdatasync(int fd) { return slowly("fdatasync", fd); }
