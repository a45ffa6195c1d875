package zktest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The end of a snapshot: sums of what is before them, each followed by a string of one character; with the tree's digest between the
// two, from 3.6 on.
const sealLength, digestLength = 8 + 4 + 1, 8 + 4 + 8

// SetSequences restarts the server with other sequences for the next children of nodes, which take weeks to reach by requests: it
// changes the counts of children in the newest snapshot. The nodes need a child each, or they may be swept meanwhile.
func (s *Server) SetSequences(t TB, sequences map[string]int32) {
	t.Helper()
	s.Restart() // writes a snapshot
	s.Kill()
	if err := patchSnapshot(filepath.Join(s.Dir, "version-2"), sequences); err != nil {
		t.Fatalf("zktest: %v", err)
	}
	s.Restart()
}

func patchSnapshot(dir string, sequences map[string]int32) error {
	newest, err := newestSnapshot(dir)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(newest)
	for node, sequence := range sequences {
		if err == nil {
			err = setSequence(text, node, sequence)
		}
	}
	logs, globErr := filepath.Glob(filepath.Join(dir, "log.*"))
	err = errors.Join(err, globErr)
	for _, one := range logs { // they would be carried out again
		if err == nil {
			err = os.Remove(one)
		}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(newest, text, 0o600)
}

func newestSnapshot(dir string) (string, error) {
	all, err := filepath.Glob(filepath.Join(dir, "snapshot.*"))
	if err != nil || len(all) == 0 {
		return "", errors.Join(fmt.Errorf("no snapshot in %s", dir), err)
	}
	return slices.MaxFunc(all, func(a, b string) int { // by the zxid in hexadecimal digits
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	}), nil
}

// setSequence changes a node's record: its path, its data, the number of its ACL, four numbers of changes and times, its version, and
// the count of its children's creations.
func setSequence(text []byte, node string, sequence int32) error {
	path := append(binary.BigEndian.AppendUint32(nil, uint32(len(node))), node...)
	at := strings.Index(string(text), string(path))
	if at < 0 {
		return fmt.Errorf("the snapshot has no %q", node)
	}
	at += len(path)
	data := max(int32(binary.BigEndian.Uint32(text[at:])), 0) // -1: none
	at += 4 + int(data) + 8 + 4*8 + 4
	end := len(text) - sealLength
	tree := end - sealLength - digestLength
	if !sealed(text, tree) {
		tree = end
	}
	if !sealed(text, tree) {
		return errors.New("the form of the snapshot is not known")
	}
	binary.BigEndian.PutUint32(text[at:], uint32(sequence))
	for _, i := range []int{tree, end} {
		binary.BigEndian.PutUint64(text[i:], uint64(adler32.Checksum(text[:i])))
	}
	return nil
}

// sealed reports that the sum of all before it is at i.
func sealed(text []byte, i int) bool {
	return i > 0 && binary.BigEndian.Uint64(text[i:]) == uint64(adler32.Checksum(text[:i]))
}
