// Preloaded into redis-server: its wall clock stands still at the microsecond that the file named by REDISTEST_CLOCK
// holds. The monotonic clock, which drives the server's own timers, goes on.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *clock_us;

__attribute__((constructor)) static void map_clock(void) {
  int fd = open(getenv("REDISTEST_CLOCK"), O_RDONLY);
  void *at = mmap(0, sizeof *clock_us, PROT_READ, MAP_SHARED, fd, 0);
  if (fd < 0 || at == MAP_FAILED) abort();
  clock_us = at;
  close(fd);
}

int gettimeofday(struct timeval *tv, void *tz) {
  long long us = *clock_us;
  tv->tv_sec = us / 1000000;
  tv->tv_usec = us % 1000000;
  return 0;
}

int clock_gettime(clockid_t which, struct timespec *ts) {
  if (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE) return syscall(SYS_clock_gettime, which, ts);
  long long us = *clock_us;
  ts->tv_sec = us / 1000000;
  ts->tv_nsec = us % 1000000 * 1000;
  return 0;
}

time_t time(time_t *t) {
  time_t s = *clock_us / 1000000;
  if (t) *t = s;
  return s;
}
