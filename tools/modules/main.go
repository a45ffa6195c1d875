// Command modules prints the directories of the modules that are released, each after those that it requires.
package main

import (
	"fmt"
	"os"

	"github.com/wllock/wllock/tools/internal/repo"
)

func main() {
	all, err := repo.Modules("..") // go -C tools
	if err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
	for _, m := range all {
		if m.Released() {
			fmt.Println(m.Dir)
		}
	}
}
