package api

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// trace adds a span for the request, to the trace that the client names in traceparent, or to a new one.
func (s *Server) trace(next http.Handler) http.Handler {
	if s.Tracer == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := w.(*requestState)
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := s.Tracer.Start(ctx, knownMethod(r.Method), trace.WithSpanKind(trace.SpanKindServer))
		x.client = ctx
		defer func() {
			route := chi.RouteContext(ctx).RoutePattern()
			span.SetName(knownMethod(r.Method) + " " + route)
			span.SetAttributes(attribute.String("http.request.method", knownMethod(r.Method)), attribute.String("http.route", route),
				attribute.Int("http.response.status_code", x.status), attribute.String("deeplink.request_id", x.requestID),
				attribute.String("deeplink.organization_id", x.organizationID))
			if x.status >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, "")
			}
			span.End()
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
