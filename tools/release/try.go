package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/wllock/wllock/tools/internal/repo"
)

// env makes go fetch this repository's modules from the clone, as it would from the host of the repository: by tags, through
// git. They must not reach the caches of this machine, where they would pass for published ones. All else comes from there.
func (r *release) env(cache string) []string {
	shared, err := output(r.top, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		shared = "\n"
	}
	dir, proxy, _ := strings.Cut(strings.TrimSpace(shared), "\n")
	return []string{
		"GOWORK=off",
		"GOMODCACHE=" + filepath.Join(r.dir, cache),
		"GOPROXY=file://" + filepath.ToSlash(dir) + "/cache/download," + proxy,
		"GOPRIVATE=" + repo.Path,
		"GOFLAGS=-modcacherw -trimpath", // so that the caches can be removed, and builds do not depend on where they are
		"GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url.file://" + filepath.ToSlash(r.clone()) + ".insteadOf",
		"GIT_CONFIG_VALUE_0=https://" + repo.Path,
	}
}

// vet checks each module by itself, with its tests, from what the tags give: the sums in go.sum are checked as well, with a
// cache that has none of the commits in between.
func (r *release) vet() error {
	for _, m := range r.modules {
		if !m.Released() {
			continue
		}
		if _, err := output(filepath.Join(r.clone(), m.Dir), r.env("fresh"), "go", "vet", "-mod=readonly", "./..."); err != nil {
			return err
		}
	}
	fmt.Println("each module builds and vets by itself")
	return nil
}

// importAll builds every package of every module in a new module, which gets it by its version.
func (r *release) importAll() error {
	for _, m := range r.modules {
		if !m.Released() {
			continue
		}
		at := filepath.Join(r.dir, "importer", m.Dir, "program") // no importer lies inside another
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		all := m.Path + "/..."
		for _, args := range [][]string{{"mod", "init", "example.com/importer"}, {"get", all + "@" + r.version}, {"build", "-o", os.DevNull, all}} {
			if _, err := output(at, r.env("fresh"), "go", args...); err != nil {
				return fmt.Errorf("importing %s: %w", m.Path, err)
			}
		}
	}
	fmt.Println("each module can be imported")
	return nil
}

// install installs the command as a user does, and lets it say its version.
func (r *release) install() error {
	env := append(r.env("fresh"), "GOBIN="+filepath.Join(r.dir, "bin"), "CGO_ENABLED=0")
	command := repo.Path + "/cmd/wllock@" + r.version
	if _, err := output(r.dir, env, "go", "install", command); err != nil {
		return err
	}
	says, err := output(r.dir, nil, filepath.Join(r.dir, "bin", "wllock"), "--version")
	fmt.Printf("go install %s: %s", command, says)
	return err
}
