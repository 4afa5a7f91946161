-- One row is a kind of the selected interruptions, as in all_endings.sql. n: how many they are.
-- keep: no
SELECT kind, count(*) AS n FROM endings GROUP BY kind
