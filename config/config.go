package config

import "time"

// Config holds the settings of a Locker. FromEnv fills it. Programs that get their settings elsewhere start from Default and set fields. The
// zero Config is not valid.
//
// It can be printed, logged and marshaled in any way: URL and Secret hide secrets.
type Config struct {
	SystemName          string        `split_words:"true"`
	Backend             URL           `split_words:"true"`
	SingleWaitThreshold Thresholds    `split_words:"true" default:"1000"`
	FleetThreshold      int           `split_words:"true" default:"0"`
	LockTimeMax         time.Duration `split_words:"true" default:"10s"`
	LeaseTTL            time.Duration `split_words:"true" default:"5s"`
	MaxHandoffs         int           `split_words:"true" default:"128"`
	MaxTenure           time.Duration `split_words:"true" default:"100ms"`
	Linger              time.Duration `split_words:"true" default:"200us"`
	Wait                time.Duration `split_words:"true" default:"0s"`
	Outage              Outage        `split_words:"true" default:"closed"`
	LongestTTL          time.Duration `split_words:"true" default:"0s"`
	Instance            string        `split_words:"true"`
	KeySecret           Secret        `split_words:"true"`
	KeySecretFile       string        `split_words:"true"`
	TLSCa               string        `split_words:"true"` // not TLSCA, which would be one word of the variable
	TLSCert             string        `split_words:"true"`
	TLSKey              string        `split_words:"true"`
	TLSServerName       string        `split_words:"true"`
	RedisUsername       string        `split_words:"true"`
	RedisPassword       Secret        `split_words:"true"`
	RedisPasswordFile   string        `split_words:"true"`
	RedisKey            KeyPattern    `split_words:"true" default:"{system}:{name}:{key}"`
	RedisInteropGap     time.Duration `split_words:"true" default:"0s"`
	RedisReplicaAcks    int           `split_words:"true" default:"0"`
	RedisAcksWithin     time.Duration `split_words:"true" default:"500ms"`

	openers map[string]Opener // by scheme; never changed, see WithOpener
}

// Default returns the settings of an empty environment. It lacks SystemName and Backend, which have no default: in a deployment that forgets the
// backend, each process would lock only for itself.
func Default() Config {
	var c Config
	for _, s := range settings {
		if err := s.parse(&c, ""); err != nil {
			panic(err) // a default in the tags above does not parse: no test has run
		}
	}
	return c
}

// FromEnv reads the WLLOCK_ variables. Its error is an *Error that lists everything that is wrong. Then the Config is zero.
func FromEnv() (Config, error) {
	var (
		c     Config
		wrong []Problem
	)
	for _, s := range settings {
		if err := s.read(&c); err != nil {
			wrong = append(wrong, s.unreadable(err))
		} else if fault := s.check(c); fault != "" { // checks this field against those before it
			wrong = append(wrong, s.problem(fault))
		}
	}
	wrong = append(wrong, unknownVariables()...)
	if len(wrong) > 0 {
		return Config{}, &Error{Problems: append(wrong, c.foreignScheme()...)}
	}
	return c, nil
}

// Validate returns an *Error with everything that is wrong, or nil. It also reads the files of secrets, if there are any. It does
// not check whether the backend's scheme is supported: Open does.
func (c Config) Validate() error {
	if wrong := c.problems(); len(wrong) > 0 {
		return &Error{Problems: wrong}
	}
	return nil
}

func (c Config) problems() (wrong []Problem) {
	for _, s := range settings {
		if fault := s.check(c); fault != "" {
			wrong = append(wrong, s.problem(fault))
		}
	}
	return wrong
}
