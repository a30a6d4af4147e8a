-- +goose Up
-- Figures by link of a whole organization sum very many rows of a few classes, and this index has all columns that they need. It replaces
-- click_days_day, which leads to pages with the rows of all organizations.
create index click_days_classes on click_days (org_key, class, day) include (link_id, outcome, clicks);
drop index click_days_day;
-- The first and the last part of a day of such a range come from click_quarters, which is in the order of time.
create index click_quarters_quarter on click_quarters using brin (quarter) with (pages_per_range = 32, autosummarize = on);

-- +goose Down
create index click_days_day on click_days (org_key, day);
drop index click_days_classes, click_quarters_quarter;
