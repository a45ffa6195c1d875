package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"
)

func (a *app) man() *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "print the manual page: wllock man > /usr/local/share/man/man1/wllock.1",
		Action: func(_ context.Context, c *cli.Command) error {
			manual(a.out, c.Root())
			return nil
		},
	}
}

// manual writes the page in roff.
func manual(w io.Writer, root *cli.Command) {
	fmt.Fprintf(w, ".TH WLLOCK 1\n.SH NAME\nwllock \\- %s\n", roff(root.Usage))
	fmt.Fprint(w, ".SH SYNOPSIS\n")
	for _, c := range root.Commands {
		if !c.Hidden && c.Name != "help" {
			fmt.Fprintf(w, ".B wllock %s\n[\\fIoptions\\fR] %s\n.br\n", roff(c.Name), roff(c.ArgsUsage))
		}
	}
	fmt.Fprint(w, ".SH DESCRIPTION\n")
	paragraphs(w, root.Description)
	fmt.Fprint(w, ".SH OPTIONS\nThese may stand before or after the name of a command.\n")
	flags(w, root.Flags)
	fmt.Fprint(w, ".SH COMMANDS\n")
	for _, c := range root.Commands {
		if c.Hidden || c.Name == "help" {
			continue
		}
		fmt.Fprintf(w, ".SS wllock %s\n%s.\n", roff(c.Name+" "+c.ArgsUsage), roff(c.Usage))
		paragraphs(w, c.Description)
		flags(w, c.Flags)
	}
}

func paragraphs(w io.Writer, text string) {
	for p := range strings.SplitSeq(text, "\n\n") {
		if p != "" {
			fmt.Fprintf(w, ".PP\n%s\n", roff(strings.TrimSpace(p)))
		}
	}
}

func flags(w io.Writer, all []cli.Flag) {
	for _, f := range all {
		docs, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		var names []string
		for _, name := range f.Names() {
			names = append(names, `\fB`+roff(dashed(name))+`\fR`)
		}
		usage := strings.ReplaceAll(docs.GetUsage(), "`", "")
		if value := docs.GetValue(); value != "" && value != "0s" && docs.TakesValue() {
			usage += " (default: " + value + ")"
		}
		fmt.Fprintf(w, ".TP\n%s\n%s\n", strings.Join(names, ", "), roff(usage))
	}
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// roff keeps text from being read as commands.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
