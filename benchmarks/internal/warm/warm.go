// Package warm keeps the cores awake. On an idle machine a core sleeps between two packets, and a lone caller waits until it wakes.
package warm

import (
	"io"
	"os"
	"os/exec"
	"runtime"
)

// childVariable is set for the children, which are this program again, or this test.
const childVariable = "WLLOCK_BENCHMARKS_SPIN"

func init() {
	if os.Getenv(childVariable) != "" {
		spin()
	}
}

// spin ends with its input, and that with the parent, however that ends.
func spin() {
	go func() {
		//lint:ignore SA5002 it is here to use what others leave of a core
		for {
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// Cores are processes, one for each core, that use what others leave.
type Cores []*exec.Cmd

// Start starts them at the lowest priority. Stop them also after an error.
func Start() (all Cores, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for range runtime.NumCPU() {
		c := exec.Command("nice", "-n", "19", self)
		c.Env = append(os.Environ(), childVariable+"=1")
		if _, err = c.StdinPipe(); err == nil { // Wait closes it
			err = c.Start()
		}
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	return all, nil
}

// Stop ends them and waits for that.
func (all Cores) Stop() {
	for _, c := range all {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}
