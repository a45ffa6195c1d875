package command

import "runtime/debug"

// version is what the build knows of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && text == "(devel)" {
			text += " " + s.Value[:min(len(s.Value), 12)]
		}
	}
	return text + " " + info.GoVersion
}
