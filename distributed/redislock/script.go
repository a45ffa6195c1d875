package redislock

import (
	"crypto/sha1" //nolint:gosec // what EVALSHA names scripts by, not a protection
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed lua/*.lua
var sources embed.FS

// script is one step of the protocol as the server runs it.
type script struct {
	name   string
	text   string
	sha    string
	digest any // sha, in an interface once for all
}

var (
	enterScript    = newScript("enter")
	beatScript     = newScript("beat")
	renewScript    = newScript("renew")
	renewAllScript = newScript("renewall")
	refillScript   = newScript("refill")
	leaveScript    = newScript("leave")
	probeScript    = newScript("probe")

	allScripts = []*script{enterScript, beatScript, renewScript, renewAllScript, refillScript, leaveScript, probeScript}
)

// includeMark begins the line of a script that the shared parts named in it are put in place of.
const includeMark = "-- include: "

// newScript puts a script together.
func newScript(name string) *script {
	text := source(name)
	if before, rest, ok := strings.Cut(text, includeMark); ok {
		parts, body, _ := strings.Cut(rest, "\n")
		for part := range strings.FieldsSeq(parts) {
			before += source(part)
		}
		text = before + body
	}
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	sha := hex.EncodeToString(sum[:])
	return &script{name: name, text: text, sha: sha, digest: sha}
}

func source(name string) string {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded at build time
	}
	return string(b)
}
