// Package config makes a Locker from the environment: one line in the application, and one table of variables for its
// operators (Usage prints it):
//
//	cfg, err := config.FromEnv()   // WLLOCK_SYSTEM_NAME=order WLLOCK_BACKEND=redis://redis:6379/0 ...
//	if err != nil {
//		log.Fatal(err)             // all wrong settings at once: what is wrong, what is allowed, an example
//	}
//	locker, err := cfg.Open(ctx)   // closing this Locker closes its backend too
//
// FromEnv refuses wrong settings and misspelled variables, because a lock that runs with an unintended default fails at the worst time.
// The system's name and the backend have no default: even memory://, which locks within this process only, must be set. A variable that is
// set but empty counts as not set.
//
// Passwords come from a file, a variable or the backend's URL and are never shown: no rendering of a Config, and no error of this package,
// contains them. In a file and in WLLOCK_REDIS_PASSWORD, a byte order mark, and white space and line ends at the end, are ignored, because
// editors, shells and secret stores add them. More than one line is refused.
package config
