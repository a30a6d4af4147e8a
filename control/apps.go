package main

import (
	"net/http"

	"deeplink/control/internal/relay"
	"deeplink/shared/catalog"
)

// getAppConfig answers GET /portal/app-config.
func (s *server) getAppConfig(x *exchange, r *http.Request, organization catalog.Organization) error {
	config, err := s.store.AppConfig(r.Context(), organization.ID)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, config)
}

// putAppConfig answers PUT /portal/app-config.
func (s *server) putAppConfig(x *exchange, r *http.Request, organization catalog.Organization) error {
	body, err := readBody(x, r, mediaJSON)
	if err != nil {
		return err
	}
	config, err := catalog.ReadAppConfig(body)
	if err != nil {
		return err
	}
	change, err := s.store.By(x.actor).SetAppConfig(r.Context(), organization.ID, config)
	if err != nil {
		return err
	}
	x.Header().Set(relay.Header, string(s.relay.Await(r.Context(), change)))
	return writeJSON(x, http.StatusOK, config)
}
