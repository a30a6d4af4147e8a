package main

import (
	"context"
	"fmt"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
)

type keyRegenerateCommand struct {
	Key  string `arg:"" help:"Key of the organization."`
	Tier string `arg:"" help:"SERVER or CLIENT."`
}

// Run implements control key regenerate.
func (c *keyRegenerateCommand) Run(t *env) error {
	tier, ok := apikey.ParseTier(c.Tier)
	if !ok {
		return fmt.Errorf("%w: the tier must be SERVER or CLIENT", errArgument)
	}
	return t.read(sharedHost{}, func(ctx context.Context, s *store.Store) error {
		o, err := organization(ctx, s, c.Key)
		if err != nil {
			return err
		}
		key, err := s.ReplaceKey(ctx, operatorActor(), o.ID, store.Unconditional, tier, 0)
		if err != nil {
			return err
		}
		return t.print(key)
	})
}
