package api

import (
	"net/http"
	"time"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// auditPage is the response of GET /portal/audit-log.
type auditPage struct {
	Data  []store.AuditEntry `json:"data"`
	Total int64              `json:"total"`
	Page  int                `json:"page"`
	Limit int                `json:"limit"`
}

// listAudit serves GET /portal/audit-log.
func (s *Server) listAudit(x *requestState, r *http.Request, organization catalog.Organization) error {
	filter, err := readAuditFilter(r.URL.RawQuery)
	if err != nil {
		return err
	}
	entries, total, err := s.Store.AuditLog(r.Context(), organization.ID, filter)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, auditPage{Data: entries, Total: total, Page: filter.Page, Limit: filter.Limit})
}

// readAuditFilter reads the query of GET /portal/audit-log. The error is a catalog.Invalid.
func readAuditFilter(raw string) (store.AuditFilter, error) {
	q := decode.ReadQuery(raw)
	const otherwise = "must be an RFC 3339 time such as 2030-01-31T12:00:00Z"
	filter := store.AuditFilter{
		Page:  q.Integer("page", 1, 1, maxPage),
		Limit: q.Integer("limit", defaultLimit, 1, maxLimit),
		Since: decode.Parse(q, "since", nil, parseTime, otherwise),
		Until: decode.Parse(q, "until", nil, parseTime, otherwise),
	}
	return filter, q.Err()
}

func parseTime(s string) (*time.Time, bool) {
	t, err := time.Parse(time.RFC3339, s)
	return &t, err == nil
}
