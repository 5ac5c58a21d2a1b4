/* Lets calls of the server fail, wait or lie, while it runs: LD_PRELOAD it.
 *
 * CHAOS_KNOBS names a file of 64-bit numbers that the supervisor writes and this library maps:
 *   0  how many of the next fdatasync and fsync calls on files of the log fail with EIO
 *   1  microseconds that each such call waits
 *   2  seconds that the wall clock is ahead (or behind)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { FAIL_SYNCS, SYNC_MICROSECONDS, CLOCK_SECONDS, KNOBS };

static _Atomic long *knobs;
static int (*real_fdatasync)(int);
static int (*real_fsync)(int);
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void prepare(void)
{
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CHAOS_KNOBS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, KNOBS * sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED)
        knobs = mapped;
}

static int is_of_log(int fd)
{
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strstr(path, "/log/") != NULL;
}

static int sync_fails(int fd)
{
    if (!knobs)
        return 0;
    long wait = atomic_load(&knobs[SYNC_MICROSECONDS]);
    if (wait > 0) {
        struct timespec time = {wait / 1000000, wait % 1000000 * 1000};
        nanosleep(&time, NULL);
    }
    if (atomic_load(&knobs[FAIL_SYNCS]) <= 0 || !is_of_log(fd) || atomic_fetch_sub(&knobs[FAIL_SYNCS], 1) <= 0)
        return 0;
    errno = EIO;
    return 1;
}

int fdatasync(int fd)
{
    return sync_fails(fd) ? -1 : real_fdatasync(fd);
}

int fsync(int fd)
{
    return sync_fails(fd) ? -1 : real_fsync(fd);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!real_clock_gettime)
        real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real_clock_gettime(clock, time);
    if (result == 0 && knobs && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += atomic_load(&knobs[CLOCK_SECONDS]);
    return result;
}
