package events

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"deeplink/bench/prove/fleet"
)

// requestsPerKey is how many batches one key may send in a minute by control's rate limit.
const requestsPerKey = 600

// keyring is the client key of one organization, replaced as often as its limit is reached: as an operator may at any time. It is safe
// for concurrent use.
type keyring struct {
	replace func(context.Context) (string, error)

	mu   sync.Mutex
	key  string
	left int
	made int // keys so far
}

// newKeyring returns the keys of an organization, whose first one is not used up.
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

// take returns a key for one request. The key of a request that is under way may stop meanwhile: that is a 401, after which another is
// taken.
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
