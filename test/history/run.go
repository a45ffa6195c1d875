package history

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Run is the history of processes that this one starts, and disturbs. Their journals are kept in a folder.
type Run struct {
	History
	folder string
	faults *Journal
}

// NewRun returns a run that keeps its journals in a folder.
func NewRun(folder string) (*Run, error) {
	file, err := os.Create(filepath.Join(folder, "faults.jsonl"))
	if err != nil {
		return nil, err
	}
	return &Run{folder: folder, faults: NewJournal(file, "faults")}, nil
}

// Process is one that writes its journal to its standard output, until its standard input ends.
type Process struct {
	Name string
	run  *Run
	cmd  *exec.Cmd
	in   io.WriteCloser
	read chan error
}

// Start starts this program once more, with variable in its environment, as the process of that name. each is called with its lines, see
// History.Read.
func (r *Run) Start(name, variable string, each func(*Process, Event, *Call)) (*Process, error) {
	p := &Process{Name: name, run: r, cmd: exec.Command(os.Args[0]), read: make(chan error, 1)}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), variable), os.Stderr
	in, inErr := p.cmd.StdinPipe()
	out, outErr := p.cmd.StdoutPipe()
	file, fileErr := os.Create(filepath.Join(r.folder, name+".jsonl"))
	if err := errors.Join(inErr, outErr, fileErr); err != nil {
		return nil, err
	}
	p.in = in
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	go func() {
		err := r.Read(io.TeeReader(out, file), func(e Event, c *Call) { each(p, e, c) })
		_, rest := io.Copy(file, out) // of a journal that is wrong, too, so that the process can end
		p.read <- errors.Join(err, rest, file.Close())
	}()
	return p, nil
}

// Tell writes a line to the process's standard input.
func (p *Process) Tell(line string) { _, _ = fmt.Fprintln(p.in, line) }

// Kill kills the process. End is still to be called.
func (p *Process) Kill() {
	p.run.Note(Fault{Kill, p.Name, Now()})
	_ = p.cmd.Process.Kill()
}

// Stop has the process stand still while meanwhile runs.
func (p *Process) Stop(meanwhile func()) {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	defer func(since int64) {
		p.run.Note(Fault{Stop, p.Name, since})
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
	}(Now())
	meanwhile()
}

// End ends the process's standard input, and returns when its journal has been read. It returns what is wrong with that, or with how the
// process has ended, unless it was killed.
func (p *Process) End() error {
	_ = p.in.Close()
	journal := <-p.read
	err := p.cmd.Wait()
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		err = nil
	}
	return errors.Join(journal, err)
}

// Note notes what this process has done to another, or to what they use, from f.Since until now.
func (r *Run) Note(f Fault) {
	r.faults.Fault(f)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Faults = append(r.Faults, Event{Fault: f, At: Now()})
}

// DrawAll draws violations in the folder of the journals, as 0.svg, 1.svg, and so on.
func (r *Run) DrawAll(found []Violation) error {
	for i, v := range found {
		file, err := os.Create(filepath.Join(r.folder, fmt.Sprint(i, ".svg")))
		if err != nil {
			return err
		}
		if err := errors.Join(r.Draw(file, v), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// End ends the journal of faults, when all processes have ended.
func (r *Run) End() error { return r.faults.file.Close() }
