package store

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

const tracerName = "deeplink/control"

// statements adds a span for each statement and each batch of a traced request. It implements pgx.QueryTracer and pgx.BatchTracer.
//
// otelpgx is not used: it records the text of errors, in which Postgres repeats values that clients sent, and has no option against that.
type statements struct{}

// startSpan starts a span whose name has the first word of each kind of statement, such as "postgres insert, select".
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
		span.SetStatus(codes.Error, "") // the text of the error may contain values; the log has it
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
