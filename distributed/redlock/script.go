package redlock

import (
	"embed"

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
	transferScript  = newScript("transfer")
)

func newScript(name string) *conn.Script { return conn.ReadScript(sources, name) }
