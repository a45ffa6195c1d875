// Package config makes a Locker from the environment: one line in the application, and one table of variables for its
// operators (Usage prints it):
//
//	cfg, err := config.FromEnv()   // WLLOCK_SYSTEM_NAME=order WLLOCK_BACKEND=redis://redis:6379/0 ...
//	if err != nil {
//		log.Fatal(err)             // all wrong settings at once: what is wrong, what is allowed, an example
//	}
//	locker, err := cfg.Open(ctx)   // closing this Locker closes its backend too
//
// A wrong setting is refused at start, and so is a misspelled variable, because a lock that runs with an unintended default
// fails at the worst time. The system's name and the backend have no default: memory://, which locks within this process only,
// is to be named. A variable that is set but empty counts as not set.
//
// Passwords come from a file, a variable or the backend's URL and are never shown: no rendering of a Config, and no error of this
// package, contains them. A file and WLLOCK_REDIS_PASSWORD are read alike: a byte order mark, and white space and line ends at
// the end, are left out, because editors, shells and secret stores add them. More than one line is refused.
package config
