package redislock

import (
	"embed"
	"strings"

	"github.com/wllock/wllock/internal/conn"
)

//go:embed lua/*.lua
var sources embed.FS

var (
	enterScript     = newScript("enter")
	heartbeatScript = newScript("heartbeat")
	renewScript     = newScript("renew")
	renewAllScript  = newScript("renewall")
	renewOneScript  = newScript("renewone")
	refillScript    = newScript("refill")
	downgradeScript = newScript("downgrade")
	leaveScript     = newScript("leave")
	probeScript     = newScript("probe")
	ttlScript       = inWords("ttl", "ask for the longest TTL")
	inspectScript   = newScript("inspect")
	breakScript     = newScript("break")

	allScripts = []*conn.Script{
		enterScript, heartbeatScript, renewScript, renewAllScript, renewOneScript, refillScript, downgradeScript, leaveScript, probeScript, ttlScript,
		inspectScript, breakScript,
	}
)

// inWords is newScript for one whose file's name says too little in an error.
func inWords(file, words string) *conn.Script {
	s := newScript(file)
	s.Name = words
	return s
}

// includeMark begins the line of a script that is replaced by the shared parts it names.
const includeMark = "-- include: "

// newScript assembles a script.
func newScript(name string) *conn.Script {
	text := source(name)
	if before, rest, ok := strings.Cut(text, includeMark); ok {
		parts, body, _ := strings.Cut(rest, "\n")
		for part := range strings.FieldsSeq(parts) {
			before += source(part)
		}
		text = before + body
	}
	return conn.NewScript(name, text)
}

func source(name string) string {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded at build time
	}
	return string(b)
}
