package api

import (
	"net/http"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/relay"
	"deeplink/shared/catalog"
)

// getAppConfig serves GET /portal/app-config.
func (s *Server) getAppConfig(x *requestState, r *http.Request, organization catalog.Organization) error {
	config, err := s.Store.AppConfig(r.Context(), organization.ID)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, config)
}

// putAppConfig serves PUT /portal/app-config.
func (s *Server) putAppConfig(x *requestState, r *http.Request, organization catalog.Organization) error {
	body, err := readBody(x, r, decode.JSON)
	if err != nil {
		return err
	}
	config, err := catalog.ReadAppConfig(body)
	if err != nil {
		return err
	}
	change, err := s.Store.SetAppConfig(r.Context(), x.actor, organization.ID, x.require, config)
	if err != nil {
		return err
	}
	x.Header().Set(relay.Header, string(s.Relay.Await(r.Context(), change)))
	return writeJSON(x, http.StatusOK, config)
}
