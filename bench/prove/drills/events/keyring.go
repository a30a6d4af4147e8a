package events

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"deeplink/bench/prove/fleet"
)

// requestsPerKey is how many batches one key may send per minute under control's rate limit.
const requestsPerKey = 600

// keyring is the client key of one organization. It is replaced when its limit is reached, as an operator may do at any time. It is safe
// for concurrent use.
type keyring struct {
	replace func(context.Context) (string, error)

	mu   sync.Mutex
	key  string
	left int
	made int // number of keys so far
}

// newKeyring returns a keyring whose first key is unused.
func newKeyring(f *fleet.Fleet, o fleet.Organization) *keyring {
	return &keyring{key: o.ClientKey, left: requestsPerKey, made: 1, replace: func(ctx context.Context) (string, error) {
		out, err := f.OperatorCommand(ctx, "key", "regenerate", o.OrgKey, "CLIENT")
		if err != nil {
			return "", err
		}
		var made struct{ RawKey string }
		if err := json.Unmarshal(out, &made); err != nil || made.RawKey == "" {
			return "", fmt.Errorf("control key regenerate printed %s", out)
		}
		return made.RawKey, nil
	}}
}

// take returns a key for one request. The key of a request in progress may be replaced meanwhile: the response is then 401, and the caller
// takes another key.
func (k *keyring) take(ctx context.Context) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left == 0 {
		key, err := k.replace(ctx)
		if err != nil {
			return "", err
		}
		k.key, k.left = key, requestsPerKey
		k.made++
	}
	k.left--
	return k.key, nil
}
