package main

import (
	"regexp"
	"strings"
	"unicode"
)

var inlineLink = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)

// anchorOf is what GitHub makes of a heading: lower case, letters, digits, hyphens and underscores, a hyphen for each space.
func anchorOf(heading string) string {
	heading = inlineLink.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(heading))
}
