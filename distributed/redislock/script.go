package redislock

import (
	"embed"

	"github.com/wllock/wllock/internal/conn"
)

//go:embed lua/*.lua
var sources embed.FS

var (
	enterScript     = newScript("enter")
	heartbeatScript = newScript("heartbeat")
	beatAllScript   = newScript("heartbeatall")
	renewScript     = newScript("renew")
	renewAllScript  = newScript("renewall")
	renewOneScript  = newScript("renewone")
	refillScript    = newScript("refill")
	downgradeScript = newScript("downgrade")
	leaveScript     = newScript("leave")
	releaseScript   = newScript("release")
	probeScript     = newScript("probe")
	ttlScript       = inWords("ttl", "ask for the longest TTL")
	inspectScript   = newScript("inspect")
	breakScript     = newScript("break")
	transferScript  = newScript("transfer")
	recordScript    = newScript("record")
	runsScript      = newScript("runs")

	// claimScript is renewScript, so it is loaded with that.
	claimScript = inWords("renew", "claim")

	allScripts = []*conn.Script{
		enterScript, heartbeatScript, beatAllScript, renewScript, renewAllScript, renewOneScript, refillScript, downgradeScript, leaveScript, releaseScript, probeScript,
		ttlScript, inspectScript, breakScript, transferScript, recordScript, runsScript,
	}
)

// inWords is newScript for one whose file's name says too little in an error.
func inWords(file, words string) *conn.Script {
	s := newScript(file)
	s.Name = words
	return s
}

func newScript(name string) *conn.Script { return conn.ReadScript(sources, name) }
