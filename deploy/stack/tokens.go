package stack

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// readOrMakeTokenKeys returns the MATCH_TOKEN_KEYS that file holds, and a new key on the first start: tokens outlive restarts. To
// change the key, put a new one and a comma before it.
func readOrMakeTokenKeys(file string) (string, error) {
	text, err := os.ReadFile(file)
	switch {
	case err == nil:
		return strings.TrimSpace(string(text)), nil
	case !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("read the keys of match tokens: %w", err)
	}
	var key [32]byte
	rand.Read(key[:]) // never fails, by its contract
	keys := hex.EncodeToString(key[:])
	// In one step: a file that was cut short would not be a key.
	if err := os.WriteFile(file+".new", []byte(keys+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the key of match tokens: %w", err)
	}
	return keys, os.Rename(file+".new", file)
}
