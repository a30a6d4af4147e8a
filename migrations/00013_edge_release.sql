-- +goose Up
-- Edges of the previous version leave the column null, and continue to work.
alter table edges add column release text check (length(release) between 1 and 100);
comment on column edges.release is 'Which release the edge is, for control doctor to compare. Null: not known.';
