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

// importAll imports every package of every module into a new program, and builds it.
func (r *release) importAll() error {
	fmt.Printf("\n%-55s %8s %8s %8s\n", "an importer of", "packages", "go.mod", "graph")
	for _, m := range r.modules {
		if m.Released() {
			if err := r.importModule(m); err != nil {
				return fmt.Errorf("importing %s: %w", m.Path, err)
			}
		}
	}
	return nil
}

func (r *release) importModule(m repo.Module) error {
	packages, err := r.packages(m)
	if err != nil || len(packages) == 0 {
		return err
	}
	at := filepath.Join(r.dir, "importer", m.Dir, "program") // no importer lies inside another
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	program := "package main\n\nimport (\n\t_ \"" + strings.Join(packages, "\"\n\t_ \"") + "\"\n)\n\nfunc main() {}\n"
	if err := os.WriteFile(filepath.Join(at, "main.go"), []byte(program), 0o644); err != nil {
		return err
	}
	env := r.env("fresh")
	get := []string{"get"}
	for _, path := range packages {
		get = append(get, path+"@"+r.version)
	}
	for _, args := range [][]string{{"mod", "init", "example.com/importer"}, get, {"build", "-o", "importer", "."}} {
		if _, err := output(at, env, "go", args...); err != nil {
			return err
		}
	}
	if err := r.report(m, at, len(packages)); err != nil || r.vulndb == "" {
		return err
	}
	found, err := output(at, env, "govulncheck", "-db", r.vulndb, ".")
	fmt.Println("  " + strings.Join(strings.Split(strings.TrimSpace(found), "\n"), "\n  "))
	return err
}

// report prints how many modules come along: as lines of the importer's go.mod, and in `go mod graph`.
func (r *release) report(m repo.Module, at string, packages int) error {
	f, err := repo.ReadMod(at)
	if err != nil {
		return err
	}
	graph, err := output(at, r.env("fresh"), "go", "mod", "graph")
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(graph) {
		if fields := strings.Fields(line); len(fields) == 2 {
			path, _, _ := strings.Cut(fields[1], "@")
			seen[path] = true
		}
	}
	delete(seen, "go")
	delete(seen, "toolchain")
	fmt.Printf("%-55s %8d %8d %8d\n", m.Path, packages, len(f.Require), len(seen))
	return nil
}

// packages returns what of a module can be imported.
func (r *release) packages(m repo.Module) ([]string, error) {
	list, err := output(filepath.Join(r.clone(), m.Dir), r.env("fresh"), "go", "list", "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, "./...")
	if err != nil {
		return nil, err
	}
	var public []string
	for path := range strings.FieldsSeq(list) {
		if !strings.Contains(path+"/", "/internal/") {
			public = append(public, path)
		}
	}
	return public, nil
}

// install installs the command as a user does, and lets it say its version.
func (r *release) install() error {
	env := append(r.env("fresh"), "GOBIN="+filepath.Join(r.dir, "bin"), "CGO_ENABLED=0")
	command := repo.Path + "/cmd/wllock@" + r.version
	if _, err := output(r.dir, env, "go", "install", command); err != nil {
		return err
	}
	says, err := output(r.dir, nil, filepath.Join(r.dir, "bin", "wllock"), "--version")
	fmt.Printf("\ngo install %s: %s", command, says)
	return err
}
