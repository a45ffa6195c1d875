package passfile_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/passfile"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	for _, test := range []struct{ name, content, want string }{
		{"as it is", "hunter2", "hunter2"},
		{"line end", "hunter2\n", "hunter2"},
		{"line end of Windows", "hunter2\r\n", "hunter2"},
		{"white space at the end", "hunter2 \t\n\n", "hunter2"},
		{"white space inside", "hunter 2\n", "hunter 2"},
		{"white space at the start", " hunter2", " hunter2"},
		{"byte order mark", "\xef\xbb\xbfhunter2\r\n", "hunter2"},
		{"no ASCII", "hunter2\u00a0\n", "hunter2\u00a0"},
		{"empty", "\ufeff \n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte(test.content), 0o600))
			got, err := passfile.Read(path)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
	_, err := passfile.Read(path + "x")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestWhatIsNotOneLineIsRefused(t *testing.T) {
	for _, text := range []string{"hunter2\nhunter3\n", "\nhunter2", "a\rb", "\xff\xfeh\x00u\x00\r\x00\n\x00"} {
		_, err := passfile.Clean(text)
		require.ErrorIs(t, err, passfile.ErrNotOneLine, "%q", text)
	}
}

// A pipe that nobody writes to is refused at once, by name. It used to be waited for.
func TestWhatIsNoRegularFileIsRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	defer r.Close()
	for _, path := range []string{pipe, fmt.Sprintf("/dev/fd/%d", r.Fd()), os.DevNull} { // <(cat password) is the second one
		_, err := passfile.Read(path)
		require.ErrorIs(t, err, passfile.ErrNotRegular)
		require.ErrorContains(t, err, path+" is a pipe or a device")
	}
}
