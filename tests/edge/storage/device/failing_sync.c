/* Loaded before libc by test_failures: fdatasync fails while the file named by FAIL_SYNC exists. */
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd) {
    const char *path = getenv("FAIL_SYNC");
    if (path && access(path, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}
