package stack

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
)

func TestTokenKeysAreCreatedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "keys")
	made, err := readOrMakeTokenKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	// The form of MATCH_TOKEN_KEYS. Every stack that starts shows that an edge accepts it.
	if key, err := hex.DecodeString(made); err != nil || len(key) != 32 {
		t.Errorf("made %q: %v, expected 64 hex digits", made, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; expected it readable by its owner only", info.Mode(), err)
	}
	if kept, err := readOrMakeTokenKeys(file); err != nil || kept != made {
		t.Errorf("the second start has %q, %v; expected %q", kept, err, made)
	}
	if other, err := readOrMakeTokenKeys(filepath.Join(dir, "other")); err != nil || other == made {
		t.Errorf("another folder has %q, %v; expected another key", other, err)
	}
	if _, err := readOrMakeTokenKeys(dir); err == nil {
		t.Error("no error for a folder instead of a file")
	}
}
