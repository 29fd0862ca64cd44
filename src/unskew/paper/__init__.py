"""The paper, table by table and figure by figure, and the demo. Complete matrices are at home here."""
