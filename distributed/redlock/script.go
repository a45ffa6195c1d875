package redlock

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
	yieldScript     = newScript("yield")
	renewScript     = newScript("renew")
	leaveScript     = newScript("leave")
	downgradeScript = newScript("downgrade")
	fenceScript     = newScript("fence")
	helloScript     = newScript("hello")
	probeScript     = newScript("probe")
	ttlScript       = newScript("ttl")
	inspectScript   = newScript("inspect")
	breakScript     = newScript("break")
)

// includeMark begins the line of a script that is replaced by the shared part it names.
const includeMark = "-- include: "

func newScript(name string) *conn.Script {
	text := source(name)
	if before, rest, ok := strings.Cut(text, includeMark); ok {
		part, body, _ := strings.Cut(rest, "\n")
		text = before + source(part) + body
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
