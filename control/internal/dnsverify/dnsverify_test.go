package dnsverify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"deeplink/control/internal/testenv"
)

// records are those of a name server that the test holds back.
type records struct {
	asked   atomic.Int64
	release chan struct{}
}

func (r *records) LookupTXT(ctx context.Context, _ string) ([]string, error) {
	r.asked.Add(1)
	select {
	case <-r.release:
		return []string{"yes"}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestLookupsAreBounded(t *testing.T) {
	t.Parallel()
	r := &records{release: make(chan struct{})}
	v := NewVerifier(r)
	var group sync.WaitGroup
	var proved atomic.Int64
	for i := range 2 * maxLookups {
		group.Go(func() {
			if values, why := v.Values(t.Context(), fmt.Sprint("organization ", i), Record{}); why == "" && slices.Equal(values, []string{"yes"}) {
				proved.Add(1)
			}
		})
	}
	testenv.Await(t, "as many lookups as there may be, and the others waiting", func() error {
		organizations := 0
		v.busy.Range(func(any, any) bool { organizations++; return true })
		if n := r.asked.Load(); n < maxLookups || organizations < 2*maxLookups {
			return fmt.Errorf("%d lookups, %d organizations", n, organizations)
		}
		return nil
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, why := v.Values(gone, "another one", Record{}); !strings.Contains(why, "Too many") {
		t.Errorf("one more: %q, expected that it is one too many", why)
	}
	if _, why := v.Values(t.Context(), "organization 0", Record{}); !strings.Contains(why, "Another domain of yours") {
		t.Errorf("a second one of the same organization: %q, expected that it has to wait", why)
	}
	if n := r.asked.Load(); n != maxLookups {
		t.Errorf("%d lookups at once, expected %d", n, maxLookups)
	}
	close(r.release)
	group.Wait()
	if proved.Load() != 2*maxLookups {
		t.Errorf("%d of %d were proved", proved.Load(), 2*maxLookups)
	}
	if _, why := NewVerifier(&net.Resolver{PreferGo: true, Dial: refuseToDial}).Values(t.Context(), "", Record{Name: "a.example"}); !strings.Contains(why, "no answer") {
		t.Errorf("no DNS server: %q, expected that there was no response", why)
	}
}

func refuseToDial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("refused")
}
