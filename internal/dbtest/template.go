package dbtest

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/wllock/wllock/internal/testproc"
)

// templates are data folders of new servers, made once in a test binary that runs its tests through Main.
var templates templateFolders

type templateFolders struct {
	mu    sync.Mutex
	isUp  bool              // guarded by mu; Main removes them
	paths map[string]string // guarded by mu
}

func (f *templateFolders) open() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isUp, f.paths = true, make(map[string]string)
}

func (f *templateFolders) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range f.paths {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	f.isUp, f.paths = false, nil
}

// get returns the template of that name and has create make it if there is none; "" if nobody would remove it. Others wait
// meanwhile.
func (f *templateFolders) get(name, user string, create func(dir string) error) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isUp {
		return "", nil
	}
	if path := f.paths[name]; path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp(testproc.DataDir(), name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "data")
	if err = testproc.Own(dir, user); err == nil {
		err = create(path)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", err
	}
	f.paths[name] = path
	return path, nil
}
