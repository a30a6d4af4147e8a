package visitor

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/bench/load"
	"deeplink/bench/prove/fleet"
	"deeplink/deploy/stack"
)

// warmers is how many connections fill an edge, warmBatch how many links each requests at a time.
const (
	warmers   = 8
	warmBatch = 64
)

// Warm requests the first n links until the edge has them in memory. The cache rejects some entries of a burst.
func Warm(ctx context.Context, edge *stack.Node, keys *load.Keys, n int) error {
	for range 10 {
		before, err := fleet.Metric(ctx, edge.Admin, fleet.EdgeLoads)
		if err != nil {
			return err
		}
		var group errgroup.Group
		for w := range warmers {
			group.Go(func() error { return askInTurn(ctx, edge.Addr, keys, n*w/warmers, n*(w+1)/warmers) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		after, err := fleet.Metric(ctx, edge.Admin, fleet.EdgeLoads)
		if err != nil || after-before <= float64(n)/500 {
			return err
		}
	}
	return fmt.Errorf("an edge does not hold %d links", n)
}

// askInTurn requests some links one after the other.
func askInTurn(ctx context.Context, addr string, keys *load.Keys, from, to int) error {
	l := Line{Addr: addr, Timeout: 30 * time.Second}
	defer l.HangUp()
	for next := from; next < to && ctx.Err() == nil; {
		if err := l.Connect(); err != nil {
			return err
		}
		n := min(warmBatch, to-next)
		for i := range n {
			l.Put("", string(keys.At(next+i)))
		}
		if err := l.Send(); err != nil {
			return err
		}
		for range n {
			if err := l.Receive(); err != nil {
				return err
			}
		}
		next += n
	}
	return ctx.Err()
}
