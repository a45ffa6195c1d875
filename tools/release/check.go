package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

var datedSection = regexp.MustCompile(`(?m)^## \[(\d\S*)\] - (\d{4}-\d\d-\d\d)$`)

// check refuses what would be a wrong release, all reasons at once.
func (r *release) check() error {
	if semver.Canonical(r.version) != r.version || r.version == "" {
		return fmt.Errorf("-version %q: want vMAJOR.MINOR.PATCH", r.version)
	}
	return errors.Join(r.checkTags(), r.checkChangelog(), r.checkClean())
}

// checkTags: a version is published once. The proxy keeps what it has seen first, whatever the tag says later.
func (r *release) checkTags() error {
	tags, err := output(r.top, nil, "git", "tag", "--list", "v*")
	if err != nil {
		return err
	}
	for tag := range strings.FieldsSeq(tags) {
		if semver.Compare(r.version, tag) <= 0 {
			return fmt.Errorf("%s is not above %s, which is tagged", r.version, tag)
		}
	}
	return nil
}

func (r *release) checkChangelog() error {
	text, err := os.ReadFile(filepath.Join(r.top, "CHANGELOG.md"))
	if err != nil || r.draft {
		return err
	}
	return inChangelog(string(text), r.version)
}

// inChangelog wants the version as the first section with a date, and nothing unreleased before it.
func inChangelog(text, version string) error {
	m := datedSection.FindStringSubmatchIndex(text)
	if m == nil || "v"+text[m[2]:m[3]] != version {
		return fmt.Errorf("CHANGELOG.md: the first section after Unreleased must be \"## [%s] - YYYY-MM-DD\"", version[1:])
	}
	if _, unreleased, found := strings.Cut(text[:m[0]], "## [Unreleased]"); found && strings.TrimSpace(unreleased) != "" {
		return errors.New("CHANGELOG.md: Unreleased is not empty: move its lines into the section of the version")
	}
	return nil
}

func (r *release) checkClean() error {
	status, err := output(r.top, nil, "git", "status", "--porcelain")
	if err == nil && status != "" && !r.draft {
		err = fmt.Errorf("the working tree has changes, and what is released is what is committed:\n%s", status)
	}
	return err
}
