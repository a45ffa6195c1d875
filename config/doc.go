// Package config makes a Locker from the environment, so that an application has one line for it and its operators one
// table of variables (Usage prints it):
//
//	cfg, err := config.FromEnv()   // WLLOCK_SYSTEM_NAME=order WLLOCK_BACKEND=redis://redis:6379/0 ...
//	if err != nil {
//		log.Fatal(err)             // all wrong settings at once: what is wrong, what is allowed, an example
//	}
//	locker, err := cfg.Open(ctx)   // closing this Locker closes its backend too
//
// A wrong setting is refused at start, never guessed at: a misspelled variable too, for a lock that runs with a default
// nobody meant is found out at the worst time. A variable that is set but empty counts as not set.
//
// Passwords are read, from a file or the backend's URL, and used, but never shown: no rendering of a Config, and no
// error of this package, contains them.
package config
