package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/wllock/wllock/tools/internal/repo"
)

// release is one release and the place where it is tried.
type release struct {
	version    string
	tag, draft bool

	top     string // of the repository
	dir     string // of the trial
	head    string // the commit on which the release is built; the repository may move on meanwhile
	modules []repo.Module
}

func (r *release) clone() string { return filepath.Join(r.dir, "clone") }

// prepare makes the commit in a clone: every module requires the others by the version, and those that are released lose
// their replace directives, which importers ignore and `go install path@version` refuses. The root comes first: its zip leaves
// nested modules out, so its hash, which their go.sum record, does not change with them.
func (r *release) prepare() error {
	if err := r.steps(
		[]string{"git", "clone", "--quiet", "--no-hardlinks", r.top, r.clone()},
		[]string{"git", "-C", r.clone(), "checkout", "--quiet", "--detach"},
	); err != nil {
		return err
	}
	head, err := output(r.clone(), nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	r.head = strings.TrimSpace(head)
	if r.modules, err = repo.Modules(r.clone()); err != nil {
		return err
	}
	for _, m := range r.modules {
		if err := r.setVersions(m); err != nil {
			return fmt.Errorf("%s: %w", m.Dir, err)
		}
	}
	return r.retag()
}

// setVersions rewrites one module's go.mod and go.sum, commits them, and tags the commit for the modules that follow.
func (r *release) setVersions(m repo.Module) error {
	edit := []string{"mod", "edit", "-module=" + m.Path}
	for _, path := range m.Requires {
		edit = append(edit, "-require="+path+"@"+r.version)
		if m.Released() {
			edit = append(edit, "-dropreplace="+path)
		}
	}
	at := filepath.Join(r.clone(), m.Dir)
	// Only versions of our own change, so there is nothing to tidy: a list finds the missing sums.
	for _, args := range [][]string{edit, {"list", "-mod=mod", "-deps", "-test", "./..."}} {
		if _, err := output(at, r.env("modcache"), "go", args...); err != nil {
			return err
		}
	}
	if !m.Released() {
		return nil
	}
	fmt.Printf("%-55s %s\n", m.Path, m.Tag(r.version))
	return r.commit("tag", m.Tag(r.version))
}

// commit commits all changes of the clone, if there are any, and runs one more git command there.
func (r *release) commit(then ...string) error {
	git := []string{"git", "-C", r.clone()}
	return r.steps(
		append(git, "commit", "--quiet", "--all", "--allow-empty", "--message", "release "+r.version),
		append(git, then...),
	)
}

// retag joins the commits to one and moves all tags there. The zips of the modules stay what they were.
func (r *release) retag() error {
	if err := r.commit("reset", "--quiet", "--soft", r.head); err != nil {
		return err
	}
	if err := r.commit("log", "-1", "--format=", "--stat"); err != nil {
		return err
	}
	for _, m := range r.modules {
		if m.Released() {
			message := m.Path + " " + r.version
			if err := r.steps([]string{"git", "-C", r.clone(), "tag", "--force", "--annotate", "--message", message, m.Tag(r.version)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish puts the commit and the tags into the repository, or says how.
func (r *release) finish() error {
	if !r.tag {
		fmt.Printf("\n%s can be released: with -tag its commit and tags are put into this repository\n", r.version)
		return nil
	}
	args := []string{"git", "-C", r.top, "fetch", "--quiet", "--no-tags", r.clone()}
	nested := "git push origin"
	for _, m := range r.modules {
		if m.Released() {
			ref := "refs/tags/" + m.Tag(r.version)
			args = append(args, ref+":"+ref)
			if m.Dir != "." {
				nested += " " + m.Tag(r.version)
			}
		}
	}
	if err := r.steps(args); err != nil {
		return err
	}
	// More than three tags in one push start no workflow, and the workflow reads the version of the command from its tag.
	fmt.Printf("\ntagged; nothing is pushed yet. A version cannot be taken back once the proxy has seen it:\n  %s\n  git push origin %s\n", nested, r.version)
	return nil
}

// steps runs commands, the first of which that fails ends it.
func (r *release) steps(commands ...[]string) error {
	for _, c := range commands {
		if _, err := output(r.dir, nil, c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// output runs a command and returns what it prints; its errors have what it says.
func output(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stderr.String(), out)
	}
	return string(out), nil
}
