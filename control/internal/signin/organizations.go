package signin

import (
	"context"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// Known is an organization of a person that exists here.
type Known struct {
	Organization catalog.Organization
	Role         string
}

// Organizations returns the memberships whose organizations exist, in the order of the token.
func (s *Service) Organizations(ctx context.Context, memberships []store.ConsoleMembership) ([]Known, error) {
	ids := make([]string, len(memberships))
	for i, m := range memberships {
		ids[i] = m.ExternalID
	}
	existing, err := s.Store.ExternalOrganizations(ctx, ids)
	if err != nil {
		return nil, err
	}
	var known []Known
	for _, m := range memberships {
		if o, ok := existing[m.ExternalID]; ok {
			known = append(known, Known{o, m.Role})
		}
	}
	return known, nil
}
