package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/bus"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

// errArgument marks errors in the arguments and files of a command.
var errArgument = errors.New("bad argument")

// commandTimeout bounds the statements of a command.
const commandTimeout = 30 * time.Second

// read runs f with a store. shared may be empty for a command that adds no domain and prints no URL.
func (t *env) read(shared sharedHost, f func(context.Context, *store.Store) error) error {
	pool, err := t.openPool(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(t.ctx, commandTimeout)
	defer cancel()
	return f(ctx, shared.store(pool))
}

// operatorActor returns the actor of an operator's command.
func operatorActor() store.Actor { return store.OperatorActor(login()) }

// login returns the name of the user who runs the command, or the user id when it has no name, as in many containers.
func login() string {
	if current, err := user.Current(); err == nil && current.Username != "" {
		return current.Username
	}
	return strconv.Itoa(os.Getuid())
}

// change runs f, which commits a change and returns it, and then waits until all edges apply the change.
func (t *env) change(with propagationFlags, f func(context.Context, *store.Store) (feed.Change, error)) (relay.Propagation, error) {
	pool, err := t.openPool(relayConnections)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	client, err := bus.Open(string(with.RedisURL))
	if err != nil {
		return "", err
	}
	defer client.Close()

	r := relay.New(pool, client, t.log)
	background, end := context.WithCancel(t.ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(background) }()
	var propagation relay.Propagation
	err = t.read(with.sharedHost, func(ctx context.Context, s *store.Store) error {
		change, err := f(ctx, s)
		if err != nil {
			return err
		}
		propagation = r.Await(ctx, change)
		return nil
	})
	end()
	return propagation, errors.Join(err, <-ended)
}

// organization returns the organization with the orgKey, in upper or lower case.
func organization(ctx context.Context, s *store.Store, key string) (catalog.Organization, error) {
	o, err := s.Organization(ctx, strings.ToLower(key))
	return o, named(key, err)
}

// named adds the orgKey to the error that an organization does not exist.
func named(key string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("organization %q: %w", key, err)
	}
	return err
}
