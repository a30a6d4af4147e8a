package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"deeplink/bench/prove/fleet"
)

// editedLinks is how many links of an editor are clicked.
const editedLinks = 200

// editor edits the clicked links of an organization, and creates and deletes others.
type editor struct {
	*fleet.Tenant
	edited, made    []string // ids
	codes           []string
	ended           chan error
	writes, pending atomic.Int64
}

// newEditor creates an organization and the links that are clicked.
func newEditor(ctx context.Context, f *fleet.Fleet) (*editor, error) {
	t, err := f.NewTenant(ctx)
	if err != nil {
		return nil, err
	}
	e := &editor{Tenant: t, ended: make(chan error, 1)}
	for range editedLinks {
		answer, err := e.Call(ctx, http.MethodPost, "/links", e.link(), http.StatusCreated)
		if err != nil {
			return nil, err
		}
		e.edited, e.codes = append(e.edited, answer.Link.ID), append(e.codes, answer.Link.ShortCode)
	}
	return e, nil
}

func (e *editor) link() map[string]any {
	return map[string]any{"path": "/soak", "fallbackUrl": fmt.Sprintf("https://example.com/soak/%d", rand.Uint32())}
}

// paths are the paths of the short URLs that are clicked.
func (e *editor) paths() (paths []string) {
	for _, code := range e.codes {
		paths = append(paths, "/"+e.OrgKey+"/"+code)
	}
	return paths
}

// start begins to write, rate times per second, until ctx ends.
func (e *editor) start(ctx context.Context, rate float64) {
	e.Pace.Reset(time.Duration(float64(time.Second) / rate))
	go func() { e.ended <- e.write(ctx) }()
}

// wait returns when writing has ended, with the reason if it ended too early.
func (e *editor) wait() error { return <-e.ended }

func (e *editor) write(ctx context.Context) error {
	for ctx.Err() == nil {
		answer, err := e.next(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		e.writes.Add(1)
		if answer.Propagation != "complete" {
			e.pending.Add(1)
		}
	}
	return nil
}

// next writes once: every other time it edits a link; in between it creates a link or deletes one that it created.
func (e *editor) next(ctx context.Context) (fleet.Answer, error) {
	if e.writes.Load()%2 == 0 {
		id := e.edited[rand.IntN(len(e.edited))]
		return e.Call(ctx, http.MethodPatch, "/links/"+id, e.link(), http.StatusOK)
	}
	if len(e.made) < editedLinks {
		answer, err := e.Call(ctx, http.MethodPost, "/links", e.link(), http.StatusCreated)
		e.made = append(e.made, answer.Link.ID)
		return answer, err
	}
	id := e.made[0]
	e.made = e.made[1:]
	return e.Call(ctx, http.MethodDelete, "/links/"+id, nil, http.StatusOK)
}
