package doors

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/wllocktest"
)

// tus is a server of uploads in a directory, one process of several.
type tus struct {
	*httptest.Server
	t *testing.T
}

func serve(t *testing.T, l *wllock.Locker, dir string) *tus {
	t.Helper()
	composer := handler.NewStoreComposer()
	filestore.New(dir).UseIn(composer)
	(&Uploads{Locker: l, Name: "upload", Look: 5 * time.Millisecond}).UseIn(composer)
	h, err := handler.NewHandler(handler.Config{
		BasePath: "/files/", StoreComposer: composer, GracefulRequestCompletionTimeout: 10 * time.Millisecond, AcquireLockTimeout: 20 * time.Second,
	})
	require.NoError(t, err)
	s := httptest.NewServer(http.StripPrefix("/files/", h))
	t.Cleanup(s.Close)
	return &tus{s, t}
}

// ask sends a request and returns what is answered.
func (s *tus) ask(method, path string, body io.Reader, header ...string) (*http.Response, string) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, body)
	if err != nil {
		return &http.Response{Status: err.Error()}, ""
	}
	r.Header.Set("Tus-Resumable", "1.0.0")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		return &http.Response{Status: err.Error()}, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp, string(text)
}

// begin creates an upload of ten bytes.
func (s *tus) begin() (path string) {
	s.t.Helper()
	resp, text := s.ask(http.MethodPost, "/files/", nil, "Upload-Length", "10")
	require.Equal(s.t, http.StatusCreated, resp.StatusCode, text)
	return strings.TrimPrefix(resp.Header.Get("Location"), s.URL)
}

// patch sends the bytes of an upload from an offset on.
func (s *tus) patch(path string, offset int, body io.Reader) (*http.Response, string) {
	return s.ask(http.MethodPatch, path, body, "Content-Type", "application/offset+octet-stream", "Upload-Offset", fmt.Sprint(offset))
}

// stall sends the first five bytes, and then nothing. It returns when they are stored. answer has what the request is answered.
func (s *tus) stall(path, dir string) (answer chan string) {
	s.t.Helper()
	body, send := io.Pipe()
	s.t.Cleanup(func() { _ = send.Close() })
	answer = make(chan string, 1)
	go func() {
		resp, text := s.patch(path, 0, body)
		answer <- resp.Status + " " + text
	}()
	_, err := send.Write([]byte("01234"))
	require.NoError(s.t, err)
	require.Eventually(s.t, func() bool {
		stored, err := os.ReadFile(filepath.Join(dir, filepath.Base(path)))
		return err == nil && len(stored) == 5
	}, 10*time.Second, time.Millisecond)
	return answer
}

// TestUploadGoesOnInAnotherRequest: its client is back while the request before is still waited for, in the same process and in another one.
func TestUploadGoesOnInAnotherRequest(t *testing.T) {
	t.Parallel()
	backend := memlock.New() // faults hide who waits
	t.Cleanup(func() { require.NoError(t, backend.Close()) })
	process := func() *wllock.Locker {
		l, err := wllock.New("shop", backend)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
		return l
	}
	dir := t.TempDir()
	one, two := serve(t, process(), dir), serve(t, process(), dir)
	for where, next := range map[string]*tus{"here": one, "in another process": two} {
		t.Run(where, func(t *testing.T) {
			path := one.begin()
			stalled := one.stall(path, dir)
			resp, _ := next.ask(http.MethodHead, path, nil)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "5", resp.Header.Get("Upload-Offset"))
			require.Contains(t, <-stalled, "ERR_UPLOAD_INTERRUPTED")
			resp, text := next.patch(path, 5, strings.NewReader("56789"))
			require.Equal(t, http.StatusNoContent, resp.StatusCode, text)
			stored, err := os.ReadFile(filepath.Join(dir, filepath.Base(path)))
			require.NoError(t, err)
			require.Equal(t, "0123456789", string(stored))
		})
	}
}

func TestUploadEndsWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	l, faults := wllocktest.NewWithFaults(t)
	dir := t.TempDir()
	s := serve(t, l, dir)
	path := s.begin()
	stalled := s.stall(path, dir)
	faults.Lose("upload", filepath.Base(path))
	require.Contains(t, <-stalled, "ERR_UPLOAD_INTERRUPTED")
}

// TestUploadWithoutALock: clients get to see neither servers nor holders.
func TestUploadWithoutALock(t *testing.T) {
	t.Parallel()
	l, faults := wllocktest.NewWithFaults(t)
	s := serve(t, l, t.TempDir())
	path := s.begin()
	faults.Partition()
	resp, text := s.patch(path, 0, strings.NewReader("0123456789"))
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "ERR_LOCK_UNAVAILABLE: the lock of the upload is unavailable\n", text)
	faults.Heal()
}

// TestUploadAsksItsHolderOnce: not while it alone wants the upload.
func TestUploadAsksItsHolderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		uploads := &Uploads{Locker: wllocktest.New(t), Name: "upload"}
		asked := make(chan struct{}, 10)
		first, err := uploads.NewLock("a/b:c")
		require.NoError(t, err)
		require.NoError(t, first.Lock(t.Context(), func() { asked <- struct{}{} }))
		time.Sleep(time.Minute)
		require.Empty(t, asked)
		second, err := uploads.NewLock("a/b:c")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, second.Lock(ctx, func() {}), handler.ErrLockTimeout)
		require.NoError(t, first.Unlock())
		require.Len(t, asked, 1)
	})
}
