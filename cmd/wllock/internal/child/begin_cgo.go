//go:build linux && cgo

package child

/*
#include <signal.h>
#include <stddef.h>

static unsigned long long ignored, blocked;

// Constructors run before Go does.
__attribute__((constructor)) static void look(void) {
	struct sigaction action;
	sigset_t mask;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	for (int n = 1; n <= 64; n++) {
		unsigned long long bit = 1ULL << (n - 1);
		if (sigismember(&mask, n) == 1) blocked |= bit;
		if (sigaction(n, NULL, &action) == 0 && action.sa_handler == SIG_IGN) ignored |= bit;
	}
}

static unsigned long long ignoredThen(void) { return ignored; }
static unsigned long long blockedThen(void) { return blocked; }
*/
import "C"

var ignored, blocked = set(C.ignoredThen()), set(C.blockedThen())
