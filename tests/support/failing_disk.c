/* Lets one call on the files below a folder fail with EIO: LD_PRELOAD it.
 *
 * FAIL_CALL   fdatasync, fsync, writev or pread
 * FAIL_PATH   only on files whose path contains this
 * FAIL_AT     the how manieth such call fails; those before and after it work
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static int fails(const char *call, int fd)
{
    const char *wanted = getenv("FAIL_CALL"), *part = getenv("FAIL_PATH"), *at = getenv("FAIL_AT");
    char name[64], path[4096];
    if (!wanted || !part || !at || strcmp(wanted, call) != 0)
        return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strstr(path, part) && atomic_fetch_add(&calls, 1) + 1 == atol(at);
}

int fdatasync(int fd)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    if (fails("fdatasync", fd)) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int fsync(int fd)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    if (fails("fsync", fd)) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    ssize_t (*real)(int, const struct iovec *, int) = dlsym(RTLD_NEXT, "writev");
    if (fails("writev", fd)) {
        errno = EIO;
        return -1;
    }
    return real(fd, pieces, count);
}

ssize_t pread64(int fd, void *buffer, size_t count, off64_t offset)
{
    ssize_t (*real)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
    if (fails("pread", fd)) {
        errno = EIO;
        return -1;
    }
    return real(fd, buffer, count, offset);
}
