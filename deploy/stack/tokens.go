package stack

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// readOrMakeTokenKeys returns the MATCH_TOKEN_KEYS in file, and creates a key on the first start: tokens stay valid across restarts. To
// replace the key, insert a new one and a comma before it.
func readOrMakeTokenKeys(file string) (string, error) {
	text, err := os.ReadFile(file)
	switch {
	case err == nil:
		return strings.TrimSpace(string(text)), nil
	case !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("read the keys of match tokens: %w", err)
	}
	var key [32]byte
	rand.Read(key[:]) // documented never to fail
	keys := hex.EncodeToString(key[:])
	// Atomically: a truncated file would be no valid key.
	if err := os.WriteFile(file+".new", []byte(keys+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("store the key of match tokens: %w", err)
	}
	return keys, os.Rename(file+".new", file)
}
