// Preloaded into a server: its wall clock is what the file named by TESTPROC_CLOCK says. Two numbers in it are
// microseconds: where the clock stands, and, if it runs, by how much it is ahead. The monotonic clock, which drives the
// server's own timers, goes on.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct setting {
  long long stands; // 0: it runs
  long long ahead;
};

static volatile struct setting *setting;

__attribute__((constructor)) static void map_setting(void) {
  int fd = open(getenv("TESTPROC_CLOCK"), O_RDONLY);
  void *at = mmap(0, sizeof *setting, PROT_READ, MAP_SHARED, fd, 0);
  if (fd < 0 || at == MAP_FAILED) abort();
  setting = at;
  close(fd);
}

static long long now_us(void) {
  long long stands = setting->stands;
  if (stands) return stands;
  struct timespec real;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &real);
  return real.tv_sec * 1000000LL + real.tv_nsec / 1000 + setting->ahead;
}

int gettimeofday(struct timeval *tv, void *tz) {
  long long us = now_us();
  tv->tv_sec = us / 1000000;
  tv->tv_usec = us % 1000000;
  return 0;
}

int clock_gettime(clockid_t which, struct timespec *ts) {
  if (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE) return syscall(SYS_clock_gettime, which, ts);
  long long us = now_us();
  ts->tv_sec = us / 1000000;
  ts->tv_nsec = us % 1000000 * 1000;
  return 0;
}

time_t time(time_t *t) {
  time_t s = now_us() / 1000000;
  if (t) *t = s;
  return s;
}
