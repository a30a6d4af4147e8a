package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	tracerName = "deeplink/control"
	// flushTimeout bounds the sending of the last spans at the end.
	flushTimeout = time.Second
)

// tracing sends a span for each request to an OTLP collector, with one below it for each statement and for the wait for the edges. Like
// the log, spans have routes and ids, and nothing else of what was sent. A nil tracing costs a request nothing.
type tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// openTracing returns nil when there is no endpoint. It connects to nothing: a collector that is down is no error here, and costs no
// request time. What else there is to set are the standard variables (OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS
// and so on), which the libraries read.
func openTracing(ctx context.Context, endpoint string, log *slog.Logger) (*tracing, error) {
	if endpoint == "" {
		return nil, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("spans are not sent", "error", err) }))
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(strings.TrimSuffix(endpoint, "/")+"/v1/traces"))
	if err != nil {
		return nil, err
	}
	about, err := resource.Merge(resource.NewSchemaless(attribute.String("service.name", "deeplink-control")), resource.Environment())
	if err != nil {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return &tracing{provider, provider.Tracer(tracerName)}, nil
}

// checkEndpoint returns what is wrong with the address of a collector. None is well.
func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	parsed, err := url.Parse(endpoint)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" {
		return errors.New("--otlp-endpoint ($OTEL_EXPORTER_OTLP_ENDPOINT) must be an http or https URL such as http://collector:4318")
	}
	return nil
}

// close sends what was not sent yet.
func (t *tracing) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// trace makes the span of a request, as part of the trace that the client names, if it names one.
func (s *server) trace(next http.Handler) http.Handler {
	if s.tracing == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := s.tracing.tracer.Start(ctx, known(r.Method), trace.WithSpanKind(trace.SpanKindServer))
		x.client = ctx
		defer func() {
			route := chi.RouteContext(ctx).RoutePattern()
			span.SetName(known(r.Method) + " " + route)
			span.SetAttributes(attribute.String("http.request.method", known(r.Method)), attribute.String("http.route", route),
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

// statements makes a span of each statement and each batch that a traced request sends. It implements pgx.QueryTracer and
// pgx.BatchTracer.
type statements struct{}

// startSpan begins a span that is named by the first word of each kind of statement, such as "postgres insert, select".
func startSpan(ctx context.Context, statements ...string) context.Context {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsValid() {
		return ctx
	}
	var words []string
	for _, sql := range statements {
		word := strings.TrimSpace(sql)
		if end := strings.IndexAny(word, " \t\n"); end >= 0 {
			word = word[:end]
		}
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	ctx, _ = parent.TracerProvider().Tracer(tracerName).Start(ctx, "postgres "+strings.Join(words, ", "), trace.WithSpanKind(trace.SpanKindClient))
	return ctx
}

func endSpan(ctx context.Context, err error) {
	span := trace.SpanFromContext(ctx)
	if err != nil {
		span.SetStatus(codes.Error, "") // the error's text may have values in it; the log has it
	}
	span.End()
}

// TraceQueryStart implements pgx.QueryTracer.
func (statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return startSpan(ctx, q.SQL)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	endSpan(ctx, q.Err)
}

// TraceBatchStart implements pgx.BatchTracer.
func (statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	sql := make([]string, len(b.Batch.QueuedQueries))
	for i, query := range b.Batch.QueuedQueries {
		sql[i] = query.SQL
	}
	return startSpan(ctx, sql...)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (statements) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchEndData) {
	endSpan(ctx, b.Err)
}
