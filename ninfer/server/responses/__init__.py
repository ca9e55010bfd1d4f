"""The Responses protocol of OpenAI: answers as items, stored and taken up again."""
